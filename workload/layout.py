"""Which GPU does what: rank grids, and the communicators that follow from them.

Two orthogonal grids share the world: the dense grid (tp, cp, dp, pp) and the expert grid (etp, ep, edp, pp), both in the rank order of
`parallel.order` with the leftmost dimension fastest. The group of a set of dimensions holds the GPUs that differ in these only, leftmost
fastest. Source: Megatron-Core `parallel_state.RankGenerator`.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from netsim.config.workload import Training
from netsim.kernels.structs import Array, Groups


class Layout(NamedTuple):
    """Sizes of every parallel dimension; products with pp are the number of GPUs in both grids."""

    n_gpus: int
    gpus_per_node: int
    tp: int
    cp: int
    dp: int
    pp: int
    vpp: int
    etp: int
    ep: int
    edp: int
    instances: int
    microbatches: int
    order: str


def layout_of(training: Training, n_gpus: int, gpus_per_node: int = 8) -> Layout:
    """Derive all sizes; `workload.check` says what does not divide."""
    par = training.parallel
    etp = par.etp or par.tp
    dp = par.dp or max(1, n_gpus // (par.tp * par.pp * par.cp))
    edp = max(1, n_gpus // (etp * par.ep * par.pp))
    microbatches = max(1, training.global_batch // (training.micro_batch * dp))
    vpp = par.vpp
    if training.pipeline.layers_per_virtual_stage:
        vpp = max(1, training.model.layers // (par.pp * training.pipeline.layers_per_virtual_stage))
    return Layout(
        n_gpus, gpus_per_node, par.tp, par.cp, dp, par.pp, vpp, etp, par.ep, edp, training.data_parallel.instances, microbatches, par.order
    )


def grid(lay: Layout, expert: bool = False) -> tuple[tuple[str, ...], Array]:
    """Return the names of the axes, slowest first, and the rank numbers in that shape."""
    sizes = (
        {"tp": lay.etp, "cp": 1, "ep": lay.ep, "dp": lay.edp, "pp": lay.pp}
        if expert
        else {"tp": lay.tp, "cp": lay.cp, "ep": 1, "dp": lay.dp, "pp": lay.pp}
    )
    axes = tuple(reversed(lay.order.split("-")))
    return axes, np.arange(prod(sizes.values()), dtype=np.int32).reshape([sizes[a] for a in axes])


def members(lay: Layout, vary: tuple[str, ...], expert: bool = False) -> Array:
    """Return int32[groups, size]: the groups in which exactly the dimensions `vary` differ."""
    axes, ranks = grid(lay, expert)
    moved = [i for i, a in enumerate(axes) if a not in vary] + [i for i, a in enumerate(axes) if a in vary]
    size = prod(ranks.shape[i] for i, a in enumerate(axes) if a in vary)
    return ranks.transpose(moved).reshape(-1, size)


def stage_of(lay: Layout, expert: bool = False) -> Array:
    """Return int32[n_gpus]: the pipeline stage of every GPU in the dense or the expert grid."""
    axes, ranks = grid(lay, expert)
    stage = np.empty(ranks.size, dtype=np.int32)
    stage[np.moveaxis(ranks, axes.index("pp"), 0).reshape(lay.pp, -1)] = np.arange(lay.pp, dtype=np.int32)[:, None]
    return stage


def _neighbours(lay: Layout, step: int) -> Array:
    """Return int32[groups, 2]: (sender, receiver) of every hop from stage r to stage r + step, wrapped around with interleaving."""
    line = members(lay, ("pp",))
    pairs = np.stack([line, np.roll(line, -step, axis=1)], axis=2)
    inside = slice(None) if lay.vpp > 1 else slice(0, -1) if step > 0 else slice(1, None)
    return pairs[:, inside].reshape(-1, 2)


def _blocks(groups: Array, size: int) -> Array:
    return groups.reshape(-1, size)


def _strided(groups: Array, instances: int) -> Array:
    return groups.reshape(groups.shape[0], instances, -1).transpose(0, 2, 1).reshape(-1, instances)


@lru_cache(maxsize=16)
def experts_per_node(lay: Layout) -> int:
    """Return the largest number of GPUs into whose parts every expert group can be cut so that each part is inside a node."""
    node = members(lay, ("tp", "ep"), True) // lay.gpus_per_node
    sizes = (n for n in range(node.shape[1], 1, -1) if node.shape[1] % n == 0)
    return next((n for n in sizes if (_blocks(node, n) == _blocks(node, n)[:, :1]).all()), 1)


def dimensions(lay: Layout, hierarchical: tuple[int, ...] = ()) -> dict[str, Array]:
    """Return the groups of every dimension that has more than one member, int32[groups, size] each.

    tp, cp, dp, dp_cp, tp_cp, tp_dp_cp, mp (tp x pp), embd (first and last stage), world; ep, expt_tp, expt_dp, tp_ep;
    <dp_cp, expt_dp>_intra, _inter (optimizer instances), instance; <dp_cp...>_gather: the same members in a second communicator;
    cp_a2a, cp_p2p (hierarchical); ep_node, ep_rail (parts of an expert group in a node, and across nodes);
    pp_next, pp_prev: (sender, receiver); mirror: stages r and pp - 1 - r.
    """
    dims = {
        "tp": members(lay, ("tp",)),
        "cp": members(lay, ("cp",)),
        "dp": members(lay, ("dp",)),
        "dp_cp": members(lay, ("dp", "cp")),
        "tp_cp": members(lay, ("tp", "cp")),
        "tp_dp_cp": members(lay, ("tp", "cp", "dp")),
        "mp": members(lay, ("tp", "pp")),
        "world": np.arange(lay.n_gpus, dtype=np.int32).reshape(1, -1),
        "embd": members(lay, ("pp",))[:, [0, -1]],
        "ep": members(lay, ("ep",), True),
        "expt_tp": members(lay, ("tp",), True),
        "expt_dp": members(lay, ("dp",), True),
        "tp_ep": members(lay, ("tp", "ep"), True),
    }
    if lay.instances > 1:
        for name in ("dp_cp", "expt_dp"):
            dims[f"{name}_intra"] = _blocks(dims[name], dims[name].shape[1] // lay.instances)
            dims[f"{name}_inter"] = _strided(dims[name], lay.instances)
        dims["instance"] = instance_groups(lay)
    for name in [n for n in dims if n.startswith(("dp_cp", "expt_dp"))]:
        dims[f"{name}_gather"] = dims[name]
    if len(hierarchical) == 2:
        dims["cp_a2a"], dims["cp_p2p"] = _blocks(dims["cp"], hierarchical[0]), _strided(dims["cp"], hierarchical[1])
    inside, size = experts_per_node(lay), dims["tp_ep"].shape[1]
    if inside < size:
        dims["ep_node"], dims["ep_rail"] = _blocks(dims["tp_ep"], inside), _strided(dims["tp_ep"], size // inside)
    if lay.pp > 1:
        dims["pp_next"], dims["pp_prev"] = _neighbours(lay, 1), _neighbours(lay, -1)
        line = members(lay, ("pp",))[:, : lay.pp // 2 * 2]
        dims["mirror"] = np.stack([line[:, : lay.pp // 2], line[:, ::-1][:, : lay.pp // 2]], axis=2).reshape(-1, 2)
    return {name: groups for name, groups in dims.items() if groups.shape[1] > 1 and (name != "embd" or lay.pp > 1)}


def instance_groups(lay: Layout) -> Array:
    """Return int32[instances, size]: all GPUs of one distributed-optimizer instance."""
    blocks = _blocks(members(lay, ("dp", "cp")), lay.dp * lay.cp // lay.instances)
    per_instance = blocks.reshape(-1, lay.instances, blocks.shape[1]).transpose(1, 0, 2).reshape(lay.instances, -1)
    return np.sort(per_instance, axis=1)


PAIRS = {"pp_fwd": "pp_next", "pp_bwd": "pp_prev", "pp_rev_fwd": "pp_prev", "pp_rev_bwd": "pp_next"}
"""Kinds of pipeline traffic and the way they go; `<kind>_out` is the sender's name of a pair, `<kind>_in` the receiver's."""


def groups_of(lay: Layout, dims: dict[str, Array], used: tuple[str, ...]) -> Groups:
    """Number the groups of the dimensions `used`, in this order, as the simulator takes them."""
    group_of = np.full((len(used), lay.n_gpus), -1, dtype=np.int32)
    lists: list[Array] = []
    kinds: list[int] = []
    first_of: dict[str, int] = {}
    for row, name in enumerate(used):
        kind, side = name.rsplit("_", 1) if name.startswith("pp_") else (name, "")
        groups = dims[PAIRS[kind]] if side else dims[name]
        if kind not in first_of:
            first_of[kind] = len(lists)
            lists.extend(groups)
            kinds.extend([row] * len(groups))
        numbers = first_of[kind] + np.arange(len(groups), dtype=np.int32)
        if side:
            group_of[row, groups[:, 0 if side == "out" else 1]] = numbers
        else:
            group_of[row, groups] = numbers[:, None]
    ptr = np.zeros(len(lists) + 1, dtype=np.int64)
    ptr[1:] = np.cumsum([len(g) for g in lists]) if lists else []
    flat = np.concatenate(lists) if lists else np.empty(0)
    return Groups(group_of, ptr, flat.astype(np.int32), np.array(kinds, dtype=np.int16))
