"""`netsim check FILE`: what a run file means and how large it is, without simulating it; and what in it cannot be."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from netsim.cli.run import add_file_and_settings
from netsim.config import config_hash, dump, load, placed, places, resolved
from netsim.config.workload import Training
from netsim.errors import InputError
from netsim.units import format_size, format_time

if TYPE_CHECKING:
    from netsim.config import Run
    from netsim.kernels.structs import Topology
    from workload import Workload
    from workload.memory import Memory

HELP = "resolved configuration, sizes, memory per GPU, and what cannot be"
Facts = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_file_and_settings(parser)
    parser.add_argument("--json", action="store_true", help="print configuration and sizes as one JSON document in the last line")


def run(args: argparse.Namespace) -> int:
    """Print what is known; lines about what cannot be go to standard error, and the exit code is 2 if there are any."""
    config = load(args.file, args.settings)
    facts: Facts = {"config_hash": config_hash(config), "sizes": {}, "memory": [], "notes": [], "problems": []}
    _fabric(config, facts)
    if isinstance(config.workload, Training):
        _training(config, config.workload, facts)
    elif not facts["problems"]:
        try:
            with places(config):
                facts["notes"].append(_traffic(config, facts["sizes"]))
        except InputError as error:
            facts["problems"] += error.lines
    if not facts["problems"]:
        _network(config, facts)
    print(dump(config))
    print(render(facts))
    if facts["problems"]:
        print("\n".join(facts["problems"]), file=sys.stderr)
    if args.json:
        print(json.dumps({"config": resolved(config), **facts}))
    return 2 if facts["problems"] else 0


def _fabric(config: "Run", facts: Facts) -> None:
    """Lay the cables and count them."""
    import topologies

    try:
        with places(config):
            topology = topologies.build(config.topology)
            topologies.routes(topology, config.topology)
    except InputError as error:
        facts["problems"] += error.lines
        return
    facts["sizes"] |= _counts(topology)


def _counts(topology: "Topology") -> dict[str, int]:
    from netsim.kernels.structs import LINK_TIERS, SWITCH

    tiers = Counter(int(t) for t, kind in zip(topology.vertex_tier, topology.vertex_kind, strict=True) if kind == SWITCH)
    switches = {f"{name} switches": tiers[number] for number, name in enumerate(("leaf", "spine", "core"), 1) if tiers[number]}
    links = Counter(topology.link_tier.tolist())
    planes = len({int(p) for p in topology.vertex_plane if p >= 0})
    hosts = {"nodes": topology.n_nodes, "GPUs": topology.n_gpus, "NICs": topology.n_nics}
    return hosts | switches | {f"{name} links": links[i] for i, name in enumerate(LINK_TIERS) if links[i]} | {"planes": planes}


def _network(config: "Run", facts: Facts) -> None:
    """Build what a run builds before its first event, and note what of it cannot be."""
    import numpy as np

    import topologies

    try:
        with places(config):
            if isinstance(config.workload, Training):
                from netsim.simulate.model import build

                model = build(config)
                topology, routes = model.topology, model.routes
            else:
                from netsim.network.traffic import expand

                topology = topologies.build(config.topology)
                routes = topologies.routes(topology, config.topology, config.seed)
                flows = expand(config.workload, topology.n_nics, config.seed)
                topologies.paths(topology, routes, flows.src, flows.dst, np.arange(len(flows.src)))
            if config.network.engine == "packet":
                from netsim.network.packet.engine import PacketEngine

                PacketEngine(topology, routes, config.network, config.seed)
            topologies.fault_events(topology, config.topology)
    except InputError as error:
        facts["problems"] += error.lines


def _training(config: "Run", training: Training, facts: Facts) -> None:
    """Check the layout against the GPUs and, where it can be, count its operations and its memory."""
    import numpy as np

    import workload

    gpus, per_node = config.topology.nodes * config.topology.gpus_per_node, config.topology.gpus_per_node
    found = workload.check(training, gpus, per_node)
    facts["problems"] += placed(config, [(f"workload.{f.field}", f.sentence) for f in found if f.fatal])
    facts["notes"] += [f"workload.{f.field}: {f.sentence}" for f in found if not f.fatal]
    if config.compute is None or any(f.fatal for f in found):
        return
    from compute.device import load_device

    try:
        with places(config):
            work = workload.build(training, gpus, per_node, load_device(config.compute), config.compute.step_times)
    except InputError as error:
        facts["problems"] += error.lines
        return
    per_program = np.diff(work.programs.stream_ptr[:: work.programs.n_streams])
    facts["sizes"] |= {"programs": work.programs.n_programs, "communicators": len(work.groups.group_dim)}
    facts["sizes"] |= {"operations per iteration": int(per_program[work.gpu_program].sum())}
    names = ("weights", "gradients", "optimizer", "activations", "peak", "peak_where")
    facts["memory"] = [{"stage": stage} | {name: getattr(memory, name) for name in names} for stage, memory in enumerate(work.memory)]
    facts["problems"] += placed(config, list(_too_small(work.memory, config.compute.device.memory)))
    facts["notes"].append(_recorded(config, work, sum(n for name, n in facts["sizes"].items() if name.endswith(" links"))))


def _recorded(config: "Run", work: "Workload", links: int) -> str:
    """How large the result file can become; the longest compute stream stands for the time of an iteration, which is not known yet."""
    import numpy as np

    from netsim.telemetry.size import at_most

    p, asked = work.programs, config.telemetry
    starts = p.stream_ptr[:: p.n_streams]
    per_program = np.diff(starts)
    kernels = max(int(p.duration[a:b].sum()) for a, b in zip(starts[:-1], p.stream_ptr[1 :: p.n_streams], strict=True))
    ranks = {"representative": np.arange(len(per_program)), "all": work.gpu_program}
    program = ranks[asked.operations] if isinstance(asked.operations, str) else work.gpu_program[list(asked.operations)]
    end_ps, turns = max(1, kernels) * config.simulate.iterations, config.simulate.iterations
    kept = {"last": 1, "all": turns}[asked.iterations] if isinstance(asked.iterations, str) else len(asked.iterations)
    rows = int(per_program[program].sum()) * kept
    size = at_most(asked.channels, links, rows, end_ps, asked.interval, config.network.engine == "packet")
    return (
        f"telemetry: at most {format_size(size.total)} before compression, {format_size(size.operations)} of it {rows:,} operations of "
        f"{kept} of {turns} iterations, {format_size(size.series)} series of {links:,} links in "
        f"intervals of {format_time(size.interval)} over {format_time(end_ps)} of kernels; links that do the same share their series"
    )


def _traffic(config: "Run", sizes: dict[str, int]) -> str:
    """How large the result file of plain traffic can become; it takes at least as long as its busiest NIC does."""
    import numpy as np

    from netsim.network.traffic import expand
    from netsim.telemetry.size import at_most

    assert not isinstance(config.workload, Training)
    flows, asked = expand(config.workload, sizes["NICs"], config.seed), config.telemetry
    sizes["flows"] = len(flows.src)
    busiest = max(np.bincount(nics, weights=flows.nbytes).max() for nics in (flows.src, flows.dst))
    end_ps = int(flows.start_ps.max() + busiest / config.topology.link.rate * 1e12)
    links = sum(n for name, n in sizes.items() if name.endswith(" links"))
    size = at_most(asked.channels, links, len(flows.src), max(1, end_ps), asked.interval, config.network.engine == "packet")
    return (
        f"telemetry: at most {format_size(size.total)} before compression, {format_size(size.series)} of it series of {links:,} links in "
        f"intervals of {format_time(size.interval)}, if the traffic takes {format_time(end_ps)}, the time of its busiest NIC"
    )


def _too_small(memory: "list[Memory]", room: int) -> Iterator[tuple[str, str]]:
    """Yield a problem for the fullest stage where a GPU's memory does not hold it."""
    stage = max(range(len(memory)), key=lambda s: memory[s].peak)
    peak = memory[stage].peak
    if peak > room:
        yield "compute.device.memory", f"expected at least {format_size(peak)}, the peak of stage {stage}; got {format_size(room)}"


def render(facts: Facts) -> str:
    """Sizes and memory as text."""
    width = max((len(name) for name in facts["sizes"]), default=0)
    lines = [f"{name:{width}}  {count:,}" for name, count in facts["sizes"].items()]
    if facts["memory"]:
        columns = ("weights", "gradients", "optimizer", "activations", "peak")
        lines += ["", "memory of one GPU", "stage" + "".join(f"{name:>13}" for name in columns) + "  where the peak is"]
        for row in facts["memory"]:
            lines.append(f"{row['stage']:5}" + "".join(f"{format_size(row[name]):>13}" for name in columns) + f"  {row['peak_where']}")
    return "\n".join([*lines, *(["", *facts["notes"]] if facts["notes"] else [])])
