"""Symmetric GPUs, groups and links simulated once: the quotient of a run by its coarsest equitable partition.

Theory. Colour GPUs by program, links by capacity, groups and bundles by what they call; refine every colour by the multiset of colours
around it until nothing splits (colour refinement). In the resulting *equitable* partition every GPU of a class meets groups of the same
classes, and every link of a class carries the same total weight of every class of bundles. Execution and max-min filling use nothing else,
so members of a class do the same things at the same times, by induction over events: simulating one of each, with a link loaded by the
total weight of each class of bundles, is exact. Random kernel times, slow GPUs or failed links give colours of their own and split what
they touch.

Colours are 64-bit hashes of multisets; n entities collide with probability below n^2 / 2^64.
"""

from typing import NamedTuple

import numpy as np

from netsim.kernels.hashing import mix
from netsim.kernels.structs import Array, Groups
from netsim.network.flow.fluid import Fluid, sum_by
from netsim.simulate.calls import CallTable


class Fold(NamedTuple):
    """Class numbers of everything, and a representative of each class."""

    gpu_class: Array  # int64[n]
    gpu_rep: Array  # int64[classes]
    group_class: Array
    group_rep: Array
    link_class: Array
    link_rep: Array
    bundle_class: Array
    bundle_rep: Array


def partition(fluid: Fluid, table: CallTable, groups: Groups, gpu_colour: Array, link_colour: Array) -> Fold:
    """Refine the given colours of GPUs and links (uint64) to the coarsest equitable partition."""
    n_groups = len(groups.group_dim)
    n_bundles = len(fluid.bundle_ptr) - 1
    node_bundle = np.repeat(np.arange(n_bundles), np.diff(fluid.bundle_ptr))
    node_coef = mix(fluid.node_coef.view(np.uint64))
    place_group, place_call = table.place_group, table.place_call
    bundle_group = table.footprint_group[np.repeat(np.arange(len(fluid.footprint_ptr) - 1), np.diff(fluid.footprint_ptr))]
    bundle = _call_colours(fluid, table)
    gpu, link = mix(gpu_colour), mix(link_colour)
    group = mix(groups.group_dim.astype(np.uint64))
    np.add.at(group, place_group, mix(place_call.astype(np.uint64)))
    count = 0
    while True:
        bundle = mix(bundle + _sum(node_bundle, mix(link[fluid.node_link] + node_coef), n_bundles) + mix(group)[bundle_group])
        link = mix(link + _sum(fluid.node_link, mix(bundle[node_bundle] + node_coef), len(link)))
        group = mix(group + _members(groups, gpu) + _sum(bundle_group, mix(bundle), n_groups))
        around = mix(gpu)
        for dim in range(len(groups.group_of)):
            of = groups.group_of[dim]
            around = around + np.where(of >= 0, mix(group[of] + np.uint64(dim + 1)), np.uint64(0))
        gpu = mix(around)
        classes = [np.unique(colour, return_index=True, return_inverse=True) for colour in (gpu, group, link, bundle)]
        n = sum(len(c[0]) for c in classes)
        if n == count:
            break
        count = n
    numbered = [_number(rep, inverse) for _, rep, inverse in classes[:3]]
    group_rep = numbered[1][1]
    # bundles are represented by those of the representative groups, which have one of every class because their colours contain them
    own = np.flatnonzero(np.isin(bundle_group, group_rep))
    inverse = classes[3][2].ravel()
    numbered.append(_number(own[np.unique(inverse[own], return_index=True)[1]], inverse))
    return Fold(*(part for pair in numbered for part in pair))


def _members(groups: Groups, gpu: Array) -> Array:
    """Colours of members with the part each plays: of two pairs that face each other, one GPU is first here and last there."""
    total = np.zeros(len(groups.group_dim), np.uint64)
    for dim, of in enumerate(groups.group_of):
        there = of >= 0
        np.add.at(total, of[there], mix(gpu[there] + np.uint64(dim + 1)))
    return total


def _number(rep: Array, inverse: Array) -> tuple[Array, Array]:
    """Number classes by their first member, so that the order of a folded run is that of the full one."""
    order = np.argsort(rep)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse.ravel()], rep[order]


def _sum(index: Array, values: Array, n: int) -> Array:
    total = np.zeros(n, np.uint64)
    np.add.at(total, index, values)
    return total


def _call_colours(fluid: Fluid, table: CallTable) -> Array:
    """A bundle's first colour: the volumes, caps and latencies of all calls of its footprint, by place in the group."""
    colour = np.zeros(len(fluid.bundle_ptr) - 1, np.uint64)
    counts = np.diff(fluid.footprint_ptr)[fluid.call_footprint]
    rows = np.repeat(fluid.call_ptr, counts) + _ramp(counts)
    bundles = np.repeat(fluid.footprint_ptr[fluid.call_footprint], counts) + _ramp(counts)
    once = table.flow_call_place  # local place of each flow call
    tag = mix(once.astype(np.uint64)) + mix(fluid.call_launch.astype(np.uint64)) + mix(mix(fluid.call_fill.astype(np.uint64)))
    value = mix(fluid.volume[rows].view(np.uint64)) + mix(mix(fluid.volume_cap[rows].view(np.uint64))) + np.repeat(tag, counts)
    np.add.at(colour, bundles, mix(value))
    return mix(colour)


def _ramp(counts: Array) -> Array:
    """0 .. n - 1 for every n in counts, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def fold_groups(groups: Groups, fold: Fold) -> Groups:
    """The groups of the representatives: one per class, each class of members once."""
    members = [np.unique(fold.gpu_class[groups.member_idx[groups.member_ptr[g] : groups.member_ptr[g + 1]]]) for g in fold.group_rep]
    of = groups.group_of[:, fold.gpu_rep]
    return Groups(
        group_of=np.where(of >= 0, fold.group_class[of], -1).astype(np.int32),
        member_ptr=np.r_[0, np.cumsum([len(m) for m in members])].astype(np.int64),
        member_idx=np.concatenate([np.zeros(0, np.int32), *members]).astype(np.int32),
        group_dim=groups.group_dim[fold.group_rep],
    )


def fold_fluid(fluid: Fluid, table: CallTable, fold: Fold) -> tuple[Fluid, CallTable]:
    """The fluid structure over classes of links, and the calls of the representative groups."""
    keep_group = np.zeros(len(fold.group_class), bool)
    keep_group[fold.group_rep] = True
    footprints = np.flatnonzero(keep_group[table.footprint_group])
    # bundle classes in order of the representative footprints
    owner = np.repeat(np.arange(len(fluid.footprint_ptr) - 1), np.diff(fluid.footprint_ptr))
    first_of = fold.bundle_rep
    # load of a representative link by every class of bundles
    node_bundle = np.repeat(np.arange(len(fluid.bundle_ptr) - 1), np.diff(fluid.bundle_ptr))
    is_rep = np.zeros(len(fluid.capacity), bool)
    is_rep[fold.link_rep] = True
    on = is_rep[fluid.node_link]
    row, link, coef = sum_by(fold.bundle_class[node_bundle[on]], fold.link_class[fluid.node_link[on]], fluid.node_coef[on])
    number = np.full(len(fluid.footprint_ptr) - 1, -1)
    number[footprints] = np.arange(len(footprints))
    classes_in = np.bincount(number[owner[first_of]], minlength=len(footprints))
    calls = np.flatnonzero(number[fluid.call_footprint] >= 0)
    rows, sizes = [], []
    start = np.r_[0, np.cumsum(classes_in)]
    for call in calls:
        f = fluid.call_footprint[call]
        mine = first_of[start[number[f]] : start[number[f] + 1]] - fluid.footprint_ptr[f]
        rows.append(fluid.call_ptr[call] + mine)
        sizes.append(len(mine))
    pick = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    folded = Fluid(
        capacity=fluid.capacity[fold.link_rep],
        footprint_ptr=start.astype(np.int64),
        bundle_ptr=np.r_[0, np.cumsum(np.bincount(row, minlength=len(first_of)))].astype(np.int64),
        node_link=link.astype(np.int32),
        node_coef=coef,
        call_footprint=number[fluid.call_footprint[calls]].astype(np.int32),
        call_ptr=np.r_[0, np.cumsum(sizes)[:-1]].astype(np.int64),
        call_launch=fluid.call_launch[calls],
        call_fill=fluid.call_fill[calls],
        volume=fluid.volume[pick],
        volume_cap=fluid.volume_cap[pick],
    )
    return folded, table.kept(fold.group_rep, fold.group_class, calls, footprints)
