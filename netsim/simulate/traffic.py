"""Plain traffic, from run file to result files: flows between NICs without a training job."""

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import topologies
from netsim import __version__, launch
from netsim.config import Run, config_hash, resolved
from netsim.config.traffic import Traffic
from netsim.kernels import flow as fluid_kernel
from netsim.kernels.structs import LINK_TIERS, Array, Routes, Topology
from netsim.network.api import Flows
from netsim.network.flow.fluid import Fluid
from netsim.network.flow.state import state as network_state
from netsim.network.traffic import expand
from netsim.progress import Progress
from netsim.simulate.record import link_facts
from netsim.telemetry.channels import COUNTERS
from netsim.telemetry.write import result_file
from netsim.units import format_time


def simulate_traffic(run: Run, out: Path, progress: Progress, began: float) -> dict[str, Any]:
    """Simulate on one rank and leave `result.h5`, `flows.csv` and `summary.json`."""
    assert isinstance(run.workload, Traffic)
    progress.update(0.0, "building the fabric")
    topology = topologies.build(run.topology)
    routes = topologies.routes(topology, run.topology, run.seed)
    flows = expand(run.workload, topology.n_nics, run.seed)
    play = _packets if run.network.engine == "packet" else _fluid
    ends, counters = play(run, topology, routes, flows, progress)
    fct_us = (ends - flows.start_ps) / 1e6
    figures: dict[str, Any] = {
        "name": run.name,
        "engine": run.network.engine,
        "complete": True,
        "flows": len(ends),
        "end_s": float(ends.max()) * 1e-12,
        "fct_us": {"min": fct_us.min(), "mean": fct_us.mean(), "p50": _at(fct_us, 50), "p99": _at(fct_us, 99), "max": fct_us.max()},
        "network_bytes": float(counters["bytes"][topology.link_tier == LINK_TIERS.index("nic")].sum() / 2),
        "nics": topology.n_nics,
        "version": __version__,
        "config_hash": config_hash(run),
        **{name: float(counters[name].sum()) for name in ("packets", "ecn", "pause_ps", "drops", "reordered") if name in counters},
        "wall_s": time.perf_counter() - began,
        "ranks": launch.launched().size,
    }
    _write(run, topology, flows, ends, counters, figures, out)
    return figures


def _at(values: Array, percent: float) -> float:
    return float(np.percentile(values, percent))


def _packets(run: Run, topology: Topology, routes: Routes, flows: Flows, progress: Progress) -> tuple[Array, dict[str, Array]]:
    """Every packet; progress is the share of the bytes that have left a NIC."""
    from netsim.network.packet.engine import PacketEngine

    engine = PacketEngine(topology, routes, run.network, run.seed)
    engine.change_rates(*topologies.fault_events(topology, run.topology))
    engine.add_flows(flows)
    total = float(flows.nbytes.sum())
    nic = (topology.link_tier == LINK_TIERS.index("nic")) & (topology.link_src < topology.n_gpus + topology.n_nodes + topology.n_nics)
    step, until, sent = 1_000_000, 0, 0.0
    while (engine.flow_ends() < 0).any():
        until += step
        engine.advance(until)
        now = float(engine.counters()["bytes"][nic].sum())
        if now == sent and until > int(flows.start_ps.max()):
            engine.finish()
        step = step * 2 if now - sent < total / 200 else max(step // 2, 1_000_000)
        sent = now
        progress.update(min(1.0, sent / total), f"simulated {format_time(until)}")
    return engine.flow_ends(), engine.counters()


def _fluid(run: Run, topology: Topology, routes: Routes, flows: Flows, progress: Progress) -> tuple[Array, dict[str, Array]]:
    """Max-min fair paces over the flows' paths; the latency of the path is added to each."""
    ptr, links = topologies.paths(topology, routes, flows.src, flows.dst, np.arange(len(flows.src)))
    n = len(flows.src)
    latency = np.add.reduceat(topology.link_latency[links], ptr[:-1])
    structure = Fluid(
        capacity=topology.link_rate.astype(np.float64),
        footprint_ptr=np.arange(n + 1),
        bundle_ptr=ptr.astype(np.int64),
        node_link=links.astype(np.int32),
        node_coef=np.ones(len(links)),
        call_footprint=np.arange(n, dtype=np.int32),
        call_ptr=np.arange(n),
        call_launch=np.zeros(n, np.int64),
        call_fill=latency.astype(np.int64),
        volume=flows.nbytes.astype(np.float64),
        volume_cap=np.full(n, np.inf),
    )
    network = network_state(structure, topologies.fault_events(topology, run.topology), shared=run.network.engine != "ideal")
    order = np.argsort(flows.start_ps, kind="stable")
    ends, waiting, ended = np.zeros(n, np.int64), 0, 0
    while ended < n:
        t = fluid_kernel.next_time(network)
        while waiting < n and flows.start_ps[order[waiting]] <= t:
            fluid_kernel.start(network, order[waiting], flows.start_ps[order[waiting]])
            waiting += 1
            t = min(t, fluid_kernel.next_time(network))
        fluid_kernel.step(network, t)
        done = network.done[: network.scalar[fluid_kernel.DONE]]
        ends[done] = t
        ended += len(done)
        network.scalar[fluid_kernel.LOG] = 0
        progress.update(ended / n, f"simulated {format_time(t)}")
    moved = np.bincount(links, weights=np.repeat(flows.nbytes, np.diff(ptr)), minlength=len(topology.link_rate))
    return ends, {"bytes": moved}


def _write(
    run: Run, topology: Topology, flows: Flows, ends: Array, counters: dict[str, Array], figures: dict[str, Any], out: Path
) -> None:
    attributes = {
        "engine": run.network.engine,
        "complete": True,
        "end_ps": int(ends.max()),
        "config": json.dumps(resolved(run)),
        "config_hash": figures["config_hash"],
        "summary": json.dumps({k: v for k, v in figures.items() if k not in ("wall_s", "ranks")}),
    }
    with result_file(out / "result.h5", attributes) as writer:
        for path, values in link_facts(topology).items():
            writer.put(path, values)
        for name in ("bytes", *COUNTERS):
            if name in counters:
                writer.put(f"links/{name}", counters[name])
        writer.put("flows/group", np.arange(len(ends)))
        writer.put("flows/bytes", flows.nbytes)
        writer.put("flows/start", flows.start_ps)
        writer.put("flows/end", ends)
    rows = zip(flows.src.tolist(), flows.dst.tolist(), flows.nbytes.tolist(), flows.start_ps.tolist(), ends.tolist(), strict=True)
    part = out / "flows.csv.part"
    with open(part, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["flow", "src", "dst", "bytes", "start_us", "end_us", "fct_us"])
        for i, (src, dst, nbytes, start, end) in enumerate(rows):
            table.writerow([i, src, dst, nbytes, f"{start / 1e6:.6f}", f"{end / 1e6:.6f}", f"{(end - start) / 1e6:.6f}"])
    part.replace(out / "flows.csv")
    part = out / "summary.json.part"
    part.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    part.replace(out / "summary.json")
