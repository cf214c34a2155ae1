"""Dead and slow links: those that are so from the start become part of the topology, the others are events for the engines.

Where several faults of one link overlap, the lowest rate holds.
"""

import numpy as np

from netsim.config.topology import Fabric, Fault
from netsim.errors import InputError
from netsim.kernels.structs import Array, Topology
from topologies.names import find_links

FOREVER = np.iinfo(np.int64).max


def apply_permanent(topology: Topology, fabric: Fabric) -> Topology:
    """Return the topology with the rates that hold for the whole run; raises `InputError` for names that do not exist, all at once."""
    rate = topology.link_rate.copy()
    for fault, links in _named(topology, fabric.faults):
        if fault.permanent:
            rate[links] = np.minimum(rate[links], fault.rate)
    return topology._replace(link_rate=rate)


def fault_events(topology: Topology, fabric: Fabric) -> tuple[Array, Array, Array]:
    """Return (t_ps int64[n], link int32[n], rate float64[n]), in order of time and link: from t on the link has this rate.

    `topology` is what `build` returned. After an event that kills or revives a link the routes are those of
    `routes(with_rates(topology, link, rate), fabric)`.
    """
    spans = [(fault.from_ or 0, FOREVER if fault.until is None else fault.until, int(link), fault.rate)
             for fault, links in _named(topology, fabric.faults) if not fault.permanent for link in links]  # fmt: skip
    events = []
    for link in sorted({s[2] for s in spans}):
        mine = [s for s in spans if s[2] == link]
        before = float(topology.link_rate[link])
        for t in sorted({t for s in mine for t in s[:2] if t < FOREVER}):
            now = min([float(topology.link_rate[link]), *(s[3] for s in mine if s[0] <= t < s[1])])
            if now != before:
                events.append((t, link, now))
            before = now
    events.sort()
    times, links, rates = zip(*events, strict=True) if events else ((), (), ())
    return np.array(times, np.int64), np.array(links, np.int32), np.array(rates, np.float64)


def with_rates(topology: Topology, link: Array, rate: Array) -> Topology:
    """Return the topology with the rates of some links replaced."""
    rates = topology.link_rate.copy()
    rates[link] = rate
    return topology._replace(link_rate=rates)


def _named(topology: Topology, faults: tuple[Fault, ...]) -> list[tuple[Fault, Array]]:
    """Each fault with its links; a fault both ways covers the reverse links too."""
    found, lines = [], []
    for i, fault in enumerate(faults):
        try:
            links = find_links(topology, fault.link)
            found.append((fault, np.concatenate([links, topology.link_reverse[links]]) if fault.both_ways else links))
        except InputError as error:
            lines += [f"topology.faults.{i}.link: {line}" for line in error.lines]
    if lines:
        raise InputError(lines)
    return found
