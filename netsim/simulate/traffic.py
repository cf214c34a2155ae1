"""Plain traffic, from run file to result files: flows between NICs without a training job."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import topologies
from netsim import __version__, launch, parallel
from netsim.config import Run, config_hash, resolved
from netsim.config.traffic import Traffic
from netsim.errors import InputError
from netsim.kernels import flow as fluid_kernel
from netsim.kernels.routing import first_switch
from netsim.kernels.structs import LINK_TIERS, Array, Routes, Topology
from netsim.network.api import PS_NEVER, Flows
from netsim.network.flow.fluid import Fluid
from netsim.network.flow.state import state as network_state
from netsim.network.traffic import expand
from netsim.progress import Progress
from netsim.simulate.loop import REPORT_S, drain, joined
from netsim.simulate.record import link_facts, write
from netsim.simulate.stopping import Stopping, leave
from netsim.telemetry.channels import COUNTERS, chosen, counted
from netsim.telemetry.frame import Frame, Happened
from netsim.telemetry.frame import joined as joined_samples
from netsim.telemetry.series import Loads, Log, bundle_bytes
from netsim.telemetry.spool import NO_RESENT, SHARED, Spool
from netsim.telemetry.write import whole
from netsim.units import format_time

NO_LOADS = Loads(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
Report = Callable[[float, int], None]
SILENCE_PS = 100_000_000_000
"""Simulated time without a byte, and with no change of a link to come, after which a packet run is asked whether it can end at all."""
STEP_PS = 1_000_000
"""Simulated time at least between two looks at the packet engine."""


def simulate_traffic(run: Run, out: Path, progress: Progress, began: float) -> dict[str, Any]:
    """Simulate; the first rank leaves `result.h5`, `flows.csv` and `summary.json`. The packet engine takes all ranks, others the first."""
    assert isinstance(run.workload, Traffic)
    progress.update(0.0, "building the fabric")
    topology = topologies.build(run.topology)
    routes = topologies.routes(topology, run.topology, run.seed)
    flows = expand(run.workload, topology.n_nics, run.seed)
    fluid, by_packets = _structure(topology, routes, flows), run.network.engine == "packet"
    world, ends = parallel.world(), np.zeros(len(flows.src), np.int64)
    spool = Spool(out, world.rank)
    if by_packets:
        world.barrier()  # the first rank has made the folder before any other writes into it
    if world.rank == 0:
        made = _frame(run, topology, routes, flows, fluid)
        with spool.clock:
            spool.frame(made)
        ends = spool.mapped("ended", ends)
    limit = np.inf if run.simulate.max_wall is None else began + run.simulate.max_wall * 1e-12

    def report(fraction: float, t_ps: int) -> None:
        progress.update(fraction, f"simulated {format_time(t_ps)}")

    with Stopping(limit) as stop:
        if by_packets:
            done, shared = _packets(run, topology, routes, flows, ends, report, stop, spool)
        else:
            done, shared = _fluid(run, topology, fluid, flows, ends, report, stop, spool), {}
    figures = {}
    if world.rank == 0:
        figures = _figures(run, topology, flows, fluid, done) | shared
        figures["ranks"] = launch.launched().size
        _table(flows, done, out / "flows.csv")
        figures |= write(made, done, figures, out, spool, began)
    leave(int(world.allgather(np.array([stop.signal])).max()) if by_packets else stop.signal)
    return figures


def _structure(topology: Topology, routes: Routes, flows: Flows) -> Fluid:
    """Flows as fluid calls, one bundle each; the latency of the path is added to each."""
    ptr, links = topologies.paths(topology, routes, flows.src, flows.dst, np.arange(len(flows.src)))
    n = len(flows.src)
    return Fluid(
        capacity=topology.link_rate.astype(np.float64),
        footprint_ptr=np.arange(n + 1),
        bundle_ptr=ptr.astype(np.int64),
        node_link=links.astype(np.int32),
        node_coef=np.ones(len(links)),
        call_footprint=np.arange(n, dtype=np.int32),
        call_ptr=np.arange(n),
        call_launch=np.zeros(n, np.int64),
        call_fill=np.add.reduceat(topology.link_latency[links], ptr[:-1]).astype(np.int64),
        volume=flows.nbytes.astype(np.float64),
        volume_cap=np.full(n, np.inf),
    )


def _frame(run: Run, topology: Topology, routes: Routes, flows: Flows, fluid: Fluid) -> Frame:
    """All that is known before the first event."""
    n_links, choices, none = len(topology.link_rate), chosen(run.telemetry.channels), np.zeros(0, np.int64)
    by_packets = run.network.engine == "packet"
    facts = {"flows/group": np.arange(len(flows.src)), "flows/bytes": flows.nbytes, "flows/start": flows.start_ps}
    facts |= {"flows/src": flows.src, "flows/dst": flows.dst}
    facts |= {"flows/path": np.arange(len(flows.src)), **_paths(run, topology, routes, flows, fluid)} if "flows" in choices else {}
    return Frame(
        attributes={"engine": run.network.engine, "config": json.dumps(resolved(run)), "config_hash": config_hash(run)},
        channels=link_facts(topology) | facts,
        interval=run.telemetry.interval,
        choices=tuple(sorted(choices)),
        loads=NO_LOADS if by_packets else Loads(fluid.bundle_ptr, fluid.node_link, fluid.node_coef),
        n_bundles=0 if by_packets else len(flows.src),
        link_of=np.arange(n_links),
        gpu_of=none,
        n_links=n_links,
        key_of_tag=none,
        keys={},
        call_group=none,
        call_bytes=none,
        call_alike=none,
        call_path=none,
    )


def _paths(run: Run, topology: Topology, routes: Routes, flows: Flows, fluid: Fluid) -> dict[str, Array]:
    """Links of every flow; those of its queue pairs one after another, and only those that no switch chooses."""
    ptr, links, n, q = fluid.bundle_ptr, fluid.node_link, len(flows.src), 1
    if run.network.engine == "packet":
        q = run.network.qps
        src, dst, qp = np.repeat(flows.src, q), np.repeat(flows.dst, q), np.tile(np.arange(q), n)
        ptr, links = topologies.paths(topology, routes, src, dst, qp)
    path = np.repeat(np.repeat(np.arange(n), q), np.diff(ptr))
    if run.network.engine == "packet" and run.network.spreading != "flow":
        fixed = topology.link_tier[links] == LINK_TIERS.index("nic")
        path, links = path[fixed], links[fixed]
    return {"paths/path": path.astype(np.int32), "paths/link": links.astype(np.int32)}


def _figures(run: Run, topology: Topology, flows: Flows, fluid: Fluid, done: Happened) -> dict[str, Any]:
    """The summary."""
    nbytes = done.counters.get("bytes")
    if nbytes is None:
        nbytes = np.bincount(fluid.node_link, np.repeat(done.moved, np.diff(fluid.bundle_ptr)), minlength=len(topology.link_rate))
    ended = done.ended > 0
    fct_us = (done.ended - flows.start_ps)[ended] / 1e6
    figures: dict[str, Any] = {
        "name": run.name,
        "engine": run.network.engine,
        "complete": done.complete,
        "flows": len(flows.src),
        "flows_done": int(ended.sum()),
        "end_s": done.end_ps * 1e-12,
        "network_bytes": float(nbytes[topology.link_tier == LINK_TIERS.index("nic")].sum() / 2),
        "nics": topology.n_nics,
        "version": __version__,
        "config_hash": config_hash(run),
        **{name: float(done.counters[name].sum()) for name in COUNTERS if name in done.counters and "queue" not in name},
    }
    if done.counters:
        figures["packet_hops"] = int(done.counters["packets"].sum())
        figures["resent"] = int(done.resent[:, 2].sum())
    if len(fct_us):
        p50, p99 = np.percentile(fct_us, (50, 99))
        found = {"min": fct_us.min(), "mean": fct_us.mean(), "p50": p50, "p99": p99, "max": fct_us.max()}
        figures["fct_us"] = {name: float(value) for name, value in found.items()}
    return figures


def _packets(
    run: Run, topology: Topology, routes: Routes, flows: Flows, ends: Array, report: Report, stop: Callable[[], bool], spool: Spool
) -> tuple[Happened, dict[str, Any]]:
    """Every packet, on all ranks, and what the summary says of them; progress is the share of the bytes that have left a NIC."""
    from netsim.network.packet.engine import PacketEngine
    from netsim.network.packet.part import compile_kernels
    from netsim.network.traffic_planes import TrafficPlanes
    from netsim.simulate.sampler import Sampler
    from netsim.simulate.share import Share, merged, together

    world, engine = parallel.world(), PacketEngine(topology, routes, run.network, run.seed)
    with parallel.first_on_node_then_others():
        compile_kernels(engine)
    engine.change_rates(*topologies.fault_events(topology, run.topology))
    planes = TrafficPlanes(engine, world, flows, run.simulate.nics_per_rank, run.simulate.partition)
    names = counted(chosen(run.telemetry.channels))
    sampler = Sampler(engine, engine, run.telemetry.interval, names, spool)
    total, last_start, again = float(flows.nbytes.sum()), int(flows.start_ps.max()), np.zeros(len(ends), np.int64)
    nic = (topology.link_tier == LINK_TIERS.index("nic")) & (topology.link_src < first_switch(topology))
    step, until, sent, moving = STEP_PS, 0, 0.0, 0
    next_sample = sampler(0)
    complete = stopping = False
    while not (complete or stopping):
        until = min(until + step, next_sample)
        planes.advance(until)
        if until == next_sample:
            next_sample = sampler(until)
        now, stops = planes.exchange([engine.counters()["bytes"][nic].sum(), stop()])
        moving = until if now > sent else max(moving, last_start)
        silent = until > moving + SILENCE_PS and engine.next_change == PS_NEVER
        if silent:
            planes.advance(int(PS_NEVER))
        found, resent = world.allgather(engine.flow_ends()).max(axis=0), engine.flow_resent()
        ends[:] = np.maximum(found, 0)
        spool.resent(_grown(again, resent))
        again, complete, stopping = resent, bool((found >= 0).all()), stops > 0
        if silent and not complete:
            raise InputError(f"network: {int((found < 0).sum())} flows can never end; a lossless network may be in deadlock")
        step = step * 2 if now - sent < total / 200 else max(step // 2, STEP_PS)
        sent = now
        report(min(1.0, sent / total), until)
    end = int(ends.max()) if complete else engine.now_ps
    sampler.take(min(engine.now_ps, end) // run.telemetry.interval)
    sent_bytes = (32 + 8 * len(ends)) * planes.exchanges
    share = Share(planes.played_s, planes.waited_s, planes.exchanges, sent_bytes, engine.windows, planes.n_planes, planes.most_ranks)
    share = share._replace(hand_over_s=planes.hand_over_s).with_part(planes.part, np.arange(world.size))
    told = sampler.totals(end), sampler.samples(), again, share
    everyone = world.gather(told) or [told]
    resent = np.add.reduce([of[2] for of in everyone])
    counters, samples = merged([of[0] for of in everyone]), {name: joined_samples([of[1][name] for of in everyone]) for name in names}
    happened = _happened(complete, end, joined([]), np.zeros(0), ends, counters, samples, _grown(np.zeros_like(resent), resent))
    return happened, {"parallel": together([of[3] for of in everyone])}


def _grown(before: Array, now: Array) -> Array:
    """(flow, 0, packets sent again) of flows that have sent more again, int64[K, 3]."""
    which = np.flatnonzero(now > before)
    return np.stack([which, 0 * which, (now - before)[which]], axis=1)


def _fluid(
    run: Run, topology: Topology, structure: Fluid, flows: Flows, ends: Array, report: Report, stop: Callable[[], bool], spool: Spool
) -> Happened:
    """Max-min fair paces over the flows' paths."""
    n = len(flows.src)
    network = network_state(structure, topologies.fault_events(topology, run.topology), shared=run.network.engine != "ideal")
    order = np.argsort(flows.start_ps, kind="stable")
    waiting, ended, t, shown, parts = 0, 0, 0, time.monotonic(), list[Log]()
    room = len(network.log_bundle) - n
    while ended < n:
        t = fluid_kernel.next_time(network)
        while waiting < n and flows.start_ps[order[waiting]] <= t:
            fluid_kernel.start(network, order[waiting], flows.start_ps[order[waiting]])
            waiting += 1
            t = min(t, fluid_kernel.next_time(network))
        if t == fluid_kernel.NEVER:
            raise InputError(f"topology.faults: expected links that return; got {n - ended} flows that can never end")
        fluid_kernel.step(network, t)
        done = network.done[: network.scalar[fluid_kernel.DONE]]
        ends[done] = t
        ended += len(done)
        if network.scalar[fluid_kernel.LOG] >= room or time.monotonic() - shown > REPORT_S or ended == n:
            parts.append(drain(network))
            spool.log(parts[-1])
            shown = time.monotonic()
            report(ended / n, int(t))
            if stop():
                break
    log, complete = joined(parts), ended == n
    moved = network.moved if complete else bundle_bytes(log, n)
    return _happened(complete, int(ends.max()) if complete else int(t), log, moved, ends, {}, {}, NO_RESENT)


def _happened(
    complete: bool, end: int, log: Log, moved: Array, ends: Array, counters: dict[str, Array], samples: dict[str, Any], resent: Array
) -> Happened:
    none = dict.fromkeys((name for name in SHARED if name != "ended"), np.zeros(0, np.int64))
    return Happened(complete, max(end, 1), log, moved, ended=np.array(ends), counters=counters, samples=samples, resent=resent, **none)


def _table(flows: Flows, done: Happened, path: Path) -> None:
    """A row for every flow; those that have not ended have no end."""
    columns = zip(flows.src.tolist(), flows.dst.tolist(), flows.nbytes.tolist(), flows.start_ps.tolist(), done.ended.tolist(), strict=True)
    with whole(path) as part, open(part, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["flow", "src", "dst", "bytes", "start_us", "end_us", "fct_us"])
        for i, (src, dst, nbytes, start, end) in enumerate(columns):
            when = [f"{end / 1e6:.6f}", f"{(end - start) / 1e6:.6f}"] if end else ["", ""]
            table.writerow([i, src, dst, nbytes, f"{start / 1e6:.6f}", *when])
