"""Plain traffic: from a pattern of a run file to its flows."""

import numpy as np

from netsim.config.traffic import Traffic
from netsim.errors import InputError
from netsim.kernels.structs import Array
from netsim.network.api import Flows


def expand(traffic: Traffic, n_nics: int, seed: int = 0) -> Flows:
    """Return the flows of a pattern among `n_nics` NICs; raises `InputError` where the fabric has too few."""
    hosts = traffic.hosts or n_nics
    if hosts > n_nics:
        raise InputError(f"workload.hosts: expected at most the {n_nics} NICs of the fabric; got {hosts}")
    if traffic.pattern == "matrix":
        return _matrix(traffic, n_nics)
    src, dst = _pairs(traffic, hosts, traffic.seed if traffic.seed is not None else seed)
    start = traffic.start + traffic.spacing * np.arange(src.size, dtype=np.int64)
    return Flows(src.astype(np.int32), dst.astype(np.int32), np.full(src.size, traffic.size, np.int64), start)


def _pairs(traffic: Traffic, hosts: int, seed: int) -> tuple[Array, Array]:
    everyone = np.arange(hosts)
    if hosts < 2:
        raise InputError(f"workload.hosts: expected at least 2 NICs; got {hosts}")
    if traffic.pattern == "permutation":
        return everyone, derangement(hosts, seed)
    if traffic.pattern == "shift":
        by = hosts // 2 if traffic.shift is None else traffic.shift
        if by % hosts == 0:
            raise InputError(f"workload.shift: expected a shift that leaves no host in place among {hosts}; got {by}")
        return everyone, (everyone + by) % hosts
    if traffic.pattern == "incast":
        if traffic.fan_in > hosts - 1:
            raise InputError(f"workload.fan_in: expected at most {hosts - 1}, one sender per other host; got {traffic.fan_in}")
        if traffic.target >= hosts:
            raise InputError(f"workload.target: expected a host below {hosts}; got {traffic.target}")
        apart = (1 + np.arange(traffic.fan_in)) * hosts // (traffic.fan_in + 1)
        return (traffic.target + apart) % hosts, np.full(traffic.fan_in, traffic.target)
    step = np.tile(np.arange(1, hosts), hosts)
    src = np.repeat(everyone, hosts - 1)
    return src, (src + step) % hosts


def derangement(n: int, seed: int) -> Array:
    """Return a random permutation of 0 .. n - 1 (n >= 2) that leaves nothing in place: one cycle over a random order."""
    order = np.random.Generator(np.random.Philox(seed)).permutation(n)
    target = np.empty(n, np.int64)
    target[order] = np.roll(order, -1)
    return target


def _matrix(traffic: Traffic, n_nics: int) -> Flows:
    rows = traffic.flows
    wrong = [(i, name, getattr(r, name)) for i, r in enumerate(rows) for name in ("src", "dst") if getattr(r, name) >= n_nics]
    if wrong:
        raise InputError(f"workload.flows.{i}.{name}: expected a NIC below {n_nics}; got {value}" for i, name, value in wrong)
    return Flows(
        np.array([r.src for r in rows], np.int32),
        np.array([r.dst for r in rows], np.int32),
        np.array([r.bytes for r in rows], np.int64),
        np.array([r.start for r in rows], np.int64),
    )
