"""Spines and cores above given leaves: the folded Clos network that most builders are.

Leaves that share their spines are a group (a rail, a pod, or all of them); groups that share their cores are a zone. Every leaf of a group
reaches each of the group's S spines by `parallel` cables, S the smallest divisor of the leaf's ports up for which the spines have
enough ports. With three tiers, spine j of every group of a zone reaches the same C cores. A tier that would join fewer than two
switches is left out.
"""

import math
from typing import NamedTuple

import numpy as np

from netsim.config.topology import TIER_NAMES, Fabric
from netsim.errors import InputError
from netsim.kernels.structs import Array, Topology
from topologies.assemble import Network, assemble

NAMES = ("", *TIER_NAMES)


class Leaves(NamedTuple):
    """The leaves, in order of zone and group, and who hangs on them."""

    of_nic: Array  # int[n_nics, ports]
    rail: Array  # int[n_leaves], -1 where a leaf serves several
    group: Array  # int[n_leaves], ascending
    zone: Array  # int[n_groups], ascending


def ports(fabric: Fabric, number: int) -> tuple[int, int]:
    """Return how many ports of a switch of tier `number` look down and up; the top tier has none up.

    Left out, they are the largest split that keeps the oversubscription: 64 ports of one speed are 32 + 32 at 1:1, 48 + 16 at 3:1.
    """
    tier = fabric.tier(number)
    assert tier.radix is not None and tier.rate is not None
    if number == fabric.tiers:
        return tier.down or tier.radix, 0
    upper = fabric.tier(number + 1).rate
    assert upper is not None
    if tier.down is None and tier.up is not None:
        return tier.radix - tier.up, tier.up
    ups = [max(1, math.ceil(down * tier.rate / (tier.oversubscription * upper) - 1e-9)) for down in range(tier.radix + 1)]
    down = tier.down or max((d for d in range(1, tier.radix) if d + ups[d] <= tier.radix), default=0)
    up = tier.up or ups[down]
    if down < 1 or down + up > tier.radix:
        raise InputError(
            f"topology.{NAMES[number]}: expected down + up of at most the radix of {tier.radix}; got {down} down and {up} up"
            f"{'' if tier.up else f' (oversubscription {tier.oversubscription:g})'}"
        )
    return down, up


def uppers(fabric: Fabric, number: int, below: int, up: int, down: int) -> int:
    """Return how many switches of tier `number` serve `below` switches with `up` ports up each, with at most `down` ports down each."""
    parallel = fabric.tier(number).parallel
    counts = [s for s in range(1, up + 1) if up % s == 0 and (parallel is None or up // s == parallel)]
    if not counts:
        raise InputError(
            f"topology.{NAMES[number]}.parallel: expected a divisor of the {up} ports up of a {NAMES[number - 1]}; got {parallel}"
        )
    fits = [s for s in counts if below * (up // s) <= down]
    if not fits:
        each = up // counts[-1]
        raise InputError(
            f"topology.nodes: expected at most {down // each} {NAMES[number - 1]} switches under one {NAMES[number]}"
            f" ({down} ports down / {each} per {NAMES[number - 1]}); got {below} for {fabric.nodes:,} nodes of {fabric.nics} NICs;"
            f" fewer nodes, a larger {NAMES[number]}.radix{' or tiers: 3' if number == 2 and fabric.tiers == 2 else ''} would do"
        )
    return fits[0]


def check_capacity(fabric: Fabric, nics: int, arithmetic: str) -> None:
    """Raise `InputError` with the arithmetic if the hosts have more NICs than the fabric has ports for them."""
    wanted = fabric.nodes * fabric.nics
    if wanted > nics:
        raise InputError(
            f"topology.nodes: expected at most {nics // fabric.nics:,} nodes ({arithmetic} = {nics:,} ports / {fabric.nics} NICs);"
            f" got {fabric.nodes:,} nodes of {fabric.gpus_per_node} GPUs, which need {wanted:,} ports"
        )


def leaves_per_pod(fabric: Fabric) -> int:
    """Return how many leaves share their spines where there are cores above: `pod`, or as many as the spines have ports for."""
    down, parallel = ports(fabric, 2)[0], fabric.spine.parallel or 1
    if down < parallel:
        raise InputError(f"topology.spine.parallel: expected at most the {down} ports down of a spine; got {parallel}")
    return fabric.pod or down // parallel


class _Cables(NamedTuple):
    a: Array
    b: Array


def _between(lower: Array, lower_column: Array, width: int, parallel: int) -> _Cables:
    """Cable every lower switch to `width` uppers that start at its column, `parallel` each, in order of upper switch."""
    upper = lower_column[:, None, None] + np.arange(width)[None, :, None] + np.zeros((1, 1, parallel), np.int64)
    return _Cables(np.repeat(lower, width * parallel), upper.ravel())


def clos(fabric: Fabric, leaves: Leaves) -> Topology:
    """Return the fabric of `leaves` with the spines and cores that join them. Raises `InputError` where ports do not suffice."""
    n_leaves, n_groups, n_nics = leaves.rail.size, leaves.zone.size, leaves.of_nic.shape[0]
    n_zones = int(leaves.zone.max()) + 1
    most_leaves, most_groups = int(np.bincount(leaves.group).max()), int(np.bincount(leaves.zone).max())
    with_cores = fabric.tiers == 3 and most_groups > 1
    with_spines = with_cores or most_leaves > 1
    _, leaf_up = ports(fabric, 1)
    spine_down, spine_up = ports(fabric, 2)
    n_spines = uppers(fabric, 2, most_leaves, leaf_up, spine_down) if with_spines else 0
    n_cores = uppers(fabric, 3, most_groups, spine_up, ports(fabric, 3)[0]) if with_cores else 0

    # network vertices: NICs, leaves, spines (group by group), cores (zone by zone, those of spine 0 first)
    leaf_0, spine_0 = n_nics, n_nics + n_leaves
    core_0 = spine_0 + n_groups * n_spines
    cables = [_Cables(np.repeat(np.arange(n_nics), leaves.of_nic.shape[1]), leaf_0 + leaves.of_nic.ravel())]
    if with_spines:
        cables.append(_between(leaf_0 + np.arange(n_leaves), spine_0 + leaves.group * n_spines, n_spines, leaf_up // n_spines))
    if with_cores:
        spine = np.arange(n_groups * n_spines)
        column = core_0 + (leaves.zone[spine // n_spines] * n_spines + spine % n_spines) * n_cores
        cables.append(_between(spine_0 + spine, column, n_cores, spine_up // n_cores))

    counts = [c.a.size for c in cables]
    tiers = [fabric.tier(t) for t in range(1, len(cables) + 1)]
    network = Network(
        switch_tier=np.repeat([1, 2, 3], [n_leaves, n_groups * n_spines, n_zones * n_spines * n_cores]),
        switch_rail=np.concatenate(
            [leaves.rail, np.repeat(_common(leaves.rail, leaves.group), n_spines), np.repeat(_zone_rails(leaves), n_spines * n_cores)]
        ),
        a=np.concatenate([c.a for c in cables]),
        b=np.concatenate([c.b for c in cables]),
        rate=np.repeat([t.rate for t in tiers], counts),
        cable=np.repeat([t.cable for t in tiers], counts),
    )
    return assemble(fabric, network)


def _common(rail: Array, group: Array) -> Array:
    """The rail that all members of each group have, or -1."""
    low, high = np.full(group.max() + 1, 32767), np.full(group.max() + 1, -1)
    np.minimum.at(low, group, rail)
    np.maximum.at(high, group, rail)
    return np.where(low == high, low, -1)


def _zone_rails(leaves: Leaves) -> Array:
    return _common(leaves.rail, leaves.zone[leaves.group])
