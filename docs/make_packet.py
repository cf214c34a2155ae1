"""Draw the figures and write the tables of docs/packet.md from the simulator's own output: `python docs/make_packet.py` (some minutes)."""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np

import topologies
from netsim.cli.main import main as netsim_main
from netsim.config.network import CongestionControl, Network
from netsim.config.topology import Fabric, Link, Switch
from netsim.config.traffic import Row, Traffic
from netsim.kernels.packet import layout as k
from netsim.kernels.packet.cc import algorithm, algorithms
from netsim.network.packet.engine import PacketEngine
from netsim.network.traffic import expand

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
MIB = 1 << 20
TREE = Fabric(
    builder="fat_tree", nodes=128, gpus_per_node=1, link=Link(rate=50e9, latency=500_000), switch=Switch(radix=8, latency=300_000)
)
PLAIN = Network(engine="packet", congestion_control=CongestionControl("none"))
CONTROLS = ("dcqcn", "swift", "hpcc")


def engine(network: Network, traffic: Traffic) -> PacketEngine:
    """The reference fat tree of 128 hosts with the flows of a pattern."""
    topology = topologies.build(TREE)
    made = PacketEngine(topology, topologies.routes(topology, TREE, 1), network, 1)
    made.add_flows(expand(traffic, topology.n_nics, 1))
    return made


def rates(control: str, rows: tuple[Row, ...], step_us: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Gb/s of every flow, and the longest queue in bytes, per step."""
    made = engine(replace(PLAIN, congestion_control=CongestionControl(control)), Traffic("traffic", "matrix", flows=rows))
    up = [int(made.state.tx[(f << k.TX) + k.UPLINK]) for f in range(len(rows))]
    last, curve, queue = np.zeros(len(rows)), [], []
    for i in range(1, steps + 1):
        made.advance(i * step_us * 1_000_000)
        now = made.counters()["bytes"][up].astype(float)
        curve.append((now - last) * 8 / (step_us * 1e3))
        queue.append(int(made.counters()["queue_max"].max()))
        made.forget_queue_max()
        last = now
    return np.array(curve), np.array(queue)


def converge() -> None:
    """Two flows into one host, the second 2 ms after the first."""
    rows = (Row(20, 0, 1536 * MIB), Row(40, 0, 1536 * MIB, 2_000_000_000))
    fig, axes = plt.subplots(1, 3, figsize=(11, 3), sharey=True)
    for axis, control in zip(axes, CONTROLS, strict=True):
        curve, _ = rates(control, rows, 200, 100)
        axis.plot(np.arange(1, 101) * 0.2, curve)
        axis.set(title=control, xlabel="time (ms)", ylim=(0, 410))
    axes[0].set_ylabel("rate of each flow (Gb/s)")
    fig.tight_layout()
    fig.savefig(HERE / "packet_converge.svg")


def incast() -> None:
    """Longest queue anywhere while eight hosts send to one."""
    rows = tuple(Row(src, 0, 512 * MIB) for src in range(20, 36, 2))
    fig, axis = plt.subplots(figsize=(6, 3))
    for control in ("none", *CONTROLS):
        _, queue = rates(control, rows, 500, 160)
        axis.plot(np.arange(1, 161) * 0.5, queue / 1e6, label=control)
    axis.axhspan(PLAIN.ecn.kmin / 1e6, PLAIN.ecn.kmax / 1e6, alpha=0.15, label="marking")
    axis.set(xlabel="time (ms)", ylabel="longest queue (MB)", yscale="log")
    axis.legend(ncols=3)
    fig.tight_layout()
    fig.savefig(HERE / "packet_incast.svg")


def spreading() -> str:
    """Completion times of a permutation by how packets are spread."""
    lines = ["| spreading | mean (us) | p99 (us) | max (us) | out of order | paused (us) |", "| --- | --- | --- | --- | --- | --- |"]
    for mode in ("flow", "flowlet", "spray", "adaptive"):
        made = engine(replace(PLAIN, spreading=mode), Traffic("traffic", "permutation", 2 * MIB))  # type: ignore[arg-type]
        made.finish()
        ends, count = made.flow_ends() / 1e6, made.counters()
        lines.append(
            f"| {mode} | {ends.mean():.1f} | {np.percentile(ends, 99):.1f} | {ends.max():.1f} | {count['reordered'].sum():,} | "
            f"{count['pause_ps'].sum() / 1e6:,.0f} |"
        )
    return "\n".join(lines)


def collectives() -> str:
    """Flow and packet engine side by side, as the command line shows them."""
    lines = ["| operation | GPUs | size | algorithm | flow (us) | packet (us) | packet / flow |", "| --- " * 7 + "|"]
    cases = [
        ("reduce_scatter", "256K", "256M", 32), ("all_gather", "256M", "1G", 4), ("all_reduce", "16K", "256M", 128),
        ("alltoall", "4M", "64M", 4), ("sendrecv", "64K", "16M", 16),
    ]  # fmt: skip
    for op, least, most, factor in cases:
        for nodes in (8, 32, 128):
            found = []
            for name in ("flow", "packet"):
                words = ["nccl-test", op, "--nodes", str(nodes), "-b", least, "-e", most, "-f", str(factor), "--engine", name, "--json"]
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    assert netsim_main(words) == 0
                found.append(json.loads(out.getvalue().strip().splitlines()[-1])["rows"])
            for flow, packet in zip(*found, strict=True):
                times = f"{flow['time_us']:,.1f} | {packet['time_us']:,.1f} | {packet['time_us'] / flow['time_us']:.3f}"
                how = f"{flow['algorithm']} {flow['protocol']}"
                lines.append(f"| {op} | {8 * nodes} | {write_size(flow['size'])} | {how} | {times} |")
                print(lines[-1], flush=True)
    return "\n".join(lines)


def write_size(nbytes: int) -> str:
    """Return a size in the largest binary unit that fits."""
    unit = max(i for i in range(4) if nbytes >> (10 * i))
    return f"{nbytes >> (10 * unit)} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


def parameters() -> str:
    """Every parameter with its default."""
    lines = ["| algorithm | parameter | default | meaning |", "| --- | --- | --- | --- |"]
    for name in algorithms():
        lines += [f"| {name} | `{key}` | {default} | {meaning} |" for key, (_, default, meaning) in algorithm(name).PARAMETERS.items()]
    return "\n".join(lines)


def put(name: str, text: str) -> None:
    """Replace the part of packet.md between the markers of a table."""
    page = HERE / "packet.md"
    before, rest = page.read_text().split(f"<!-- {name} -->\n")
    _, after = rest.split(f"<!-- end of {name} -->\n")
    page.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- end of {name} -->\n{after}")


def main() -> None:
    """Make everything, or only the tables that are named."""
    tables = {"spreading": spreading, "collectives": collectives, "parameters": parameters}
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            put(name, tables[name]())
        return
    put("parameters", parameters())
    converge()
    incast()
    put("spreading", spreading())
    put("collectives", collectives())


if __name__ == "__main__":
    main()
