"""The tuner against the output of NCCL 2.30.7's own cost model: every latency and bandwidth it prints, and what it chooses."""

from pathlib import Path

import pytest

from netsim.collectives import choose
from netsim.collectives.tuner import case_of, latency_us, rate, threads_and_channels
from netsim.config.nccl import PROTOCOLS, Nccl, choices
from netsim.config.nccl_tables import Tables
from netsim.errors import InputError
from tests.collectives_cases import A100, H100, MACHINES, comm

CELLS = Path(__file__).parent / "golden" / "nccl_tuner.txt"

CHOICES = """
H100 1 8 all_reduce: 64 ring/ll, 2M nvls/simple
H100 1 8 all_gather: 64 ring/ll, 8M ring/ll128, 32M ring/simple
H100 2 8 all_reduce: 64 tree/ll, 256K tree/ll128, 2M nvls_tree/simple
H100 2 8 reduce_scatter: 64 ring/ll, 1M ring/ll128, 64M ring/simple
H100 4 8 all_reduce: 64 tree/ll, 256K tree/ll128, 8M nvls_tree/simple, 1G ring/simple
H100 4 8 all_gather: 64 ring/ll, 1M ring/ll128, 128M ring/simple
H100 16 8 all_reduce: 64 tree/ll, 256K tree/ll128, 16M nvls_tree/simple, 8G ring/simple
H100 16 8 all_gather: 64 ring/ll, 4M ring/ll128, 512M ring/simple
H100 128 8 all_reduce: 64 tree/ll, 256K tree/ll128, 32M nvls_tree/simple
H100 128 8 reduce_scatter: 64 ring/ll, 32M ring/ll128, 4G ring/simple
A100 1 8 all_reduce: 64 ring/ll, 4M ring/ll128, 32M ring/simple
A100 4 8 all_reduce: 64 tree/ll, 256K tree/ll128, 32M ring/ll128, 256M ring/simple
B200 1 8 all_reduce: 64 ring/ll, 4M nvls/simple
B200 1 8 all_gather: 64 ring/ll, 16M ring/ll128, 32M ring/simple
H100 16 1 all_gather: 64 pat/simple, 16M ring/ll128, 64M ring/simple
H100 16 1 all_reduce: 64 tree/ll, 128K tree/ll128, 16M ring/ll128, 128M ring/simple
"""
UNIT = {"K": 2**10, "M": 2**20, "G": 2**30}


def _cells():
    for line in CELLS.read_text().splitlines()[3:]:
        machine, *cells = (part.strip() for part in line.split("|"))
        name, nodes, width = machine.split()
        for (algorithm, protocol), cell in zip(((a, p) for a in ("tree", "ring") for p in PROTOCOLS), cells[:6], strict=True):
            yield name, int(nodes), int(width), "all_reduce", algorithm, protocol, cell
        yield name, int(nodes), int(width), "all_reduce", "nvls" if nodes == "1" else "nvls_tree", "simple", cells[6]
        for op in ("all_gather", "reduce_scatter"):
            for protocol, cell in zip(PROTOCOLS, cells[7].split(","), strict=True):
                yield name, int(nodes), int(width), op, "ring", protocol, cell.strip()


@pytest.mark.parametrize(("name", "nodes", "width", "op", "algorithm", "protocol", "cell"), list(_cells()))
def test_latency_and_bandwidth_equal_nccls(name, nodes, width, op, algorithm, protocol, cell):
    key = (op, comm(nodes, width), MACHINES[name], Nccl())
    if cell == "-":
        assert rate(key, algorithm, protocol) == 0
        return
    latency, bandwidth = (float(x) for x in cell.split("/"))
    assert latency_us(case_of(*key), algorithm, protocol) == pytest.approx(latency, abs=0.02)
    assert rate(key, algorithm, protocol) == pytest.approx(bandwidth, abs=0.01)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize(("nodes", "width", "expected"), [
    (1, 8, (6.6 + 0.6, 14 + 1.9, 8.4 + 3.4)),  # one way for all channels: one hop
    (16, 1, (6.6 + 2.7, 14 + 4.0, 8.4 + 14.0)),
    (2, 8, (6.6 + 16 * 2.7, 14 + 16 * 4.0, 8.4 + 16 * 14.0)),  # channels that differ: a hop per rank, with Simple as in a tree
])  # fmt: skip
def test_chains(op, nodes, width, expected):
    case = case_of(op, comm(nodes, width), H100, Nccl())
    assert tuple(latency_us(case, "ring", p) for p in PROTOCOLS) == pytest.approx(expected)


def test_pat_of_one_gpu_per_node():
    key = ("all_gather", comm(16, 1), H100, Nccl())
    assert latency_us(case_of(*key), "pat", "simple") == pytest.approx(68.8, abs=0.02)
    assert rate(key, "pat", "simple") == pytest.approx(36.0, abs=0.01)


@pytest.mark.parametrize("line", CHOICES.strip().splitlines())
def test_choices_over_all_powers_of_two(line):
    machine, starts = line.split(": ")
    name, nodes, width, op = machine.split()
    _check_starts(op, comm(int(nodes), int(width)), MACHINES[name], Nccl(), starts)


def test_choices_without_nvls():
    starts = "64 tree/ll, 256K tree/ll128, 32M ring/ll128, 256M ring/simple"
    _check_starts("all_reduce", comm(4), H100, Nccl(NCCL_NVLS_ENABLE=0), starts)


def _check_starts(op, c, machine, nccl, starts):
    expected = [tuple(entry.split()) for entry in starts.split(", ")]
    found, size = [], 64
    while size <= 2**34:
        choice = choose(op, size, c, machine, nccl)
        name = f"{choice.algorithm}/{choice.protocol}"
        if not found or found[-1][1] != name:
            found.append((size, name))
        size *= 2
    assert found == [(int(s[:-1]) * UNIT[s[-1]] if s[-1] in UNIT else int(s), name) for s, name in expected]


def test_worked_times():
    assert choose("all_reduce", 2**28, comm(4), H100, Nccl(NCCL_ALGO="Ring", NCCL_PROTO="Simple")).time_us == pytest.approx(1750.3, abs=0.1)
    assert choose("all_reduce", 2**28, comm(4), H100, Nccl()).time_us == pytest.approx(1537.4, abs=0.1)
    assert choose("all_gather", 2**28, comm(4), H100, Nccl()).time_us == pytest.approx(822.8, abs=0.1)
    assert choose("all_reduce", 2**20, comm(4), H100, Nccl()).time_us == pytest.approx(83.2, abs=0.1)


def test_ring_simple_keeps_all_channels_from_their_threshold():
    case = case_of("all_reduce", comm(4), H100, Nccl())
    assert threads_and_channels(case, "ring", "simple", 16 * 512 * 64) == (544, 16)
    assert threads_and_channels(case, "ring", "simple", 16 * 512 * 64 - 1)[1] == 15
    assert threads_and_channels(case, "ring", "ll128", 16 * 640 * 8)[1] == 16
    assert threads_and_channels(case, "ring", "ll", 16 * 512 * 8 * 32)[1] == 16
    assert threads_and_channels(case, "ring", "ll", 2 * 512 * 8 * 32)[1] == 2


def test_variables_restrict_the_choice():
    assert choices("Ring,Tree", "allreduce", ("tree", "ring", "nvls")) == ("tree", "ring")
    assert choices("^NVLS", "allreduce", ("tree", "ring", "nvls")) == ("tree", "ring")
    assert choices("allreduce:tree;broadcast:ring", "allreduce", ("tree", "ring", "nvls")) == ("tree",)
    assert choices("allreduce:tree", "allgather", ("tree", "ring")) == ("tree", "ring")
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        choices("Rings", "allreduce", ("tree", "ring"))
    with pytest.raises(InputError, match=r"nccl.NCCL_ALGO: .* for broadcast on 16 ranks \(ring/ll, .*\); got NCCL_ALGO=Tree, which leave"):
        choose("broadcast", 1024, comm(2), H100, Nccl(NCCL_ALGO="Tree"))


def test_tables_and_overheads_can_be_overridden():
    slow = Nccl(tables=Tables(hw_latency_net_ring=(10.0, 10.0, 10.0)))
    key, other = ("all_gather", comm(4), H100, Nccl()), ("all_gather", comm(4), H100, slow)
    assert latency_us(case_of(*other), "ring", "ll") - latency_us(case_of(*key), "ring", "ll") == pytest.approx(3 * (10 - 2.7))
    fast = Nccl(NCCL_NET_OVERHEAD=0)
    assert latency_us(case_of("all_gather", comm(4), A100, fast), "ring", "ll") == pytest.approx(6.6 + 28 * 0.6 + 3 * 2.7)


@pytest.mark.parametrize(("variables", "channels"), [({}, 16), ({"NCCL_MIN_NCHANNELS": 24}, 24), ({"NCCL_MAX_CTAS": 4}, 4)])
def test_bounds_of_channels(variables, channels):
    assert case_of("all_reduce", comm(4), H100, Nccl(**variables)).channels == channels


def test_contradicting_variables_are_problems():
    found = dict(Nccl(NCCL_ALGO="Rong", NCCL_MIN_NCHANNELS=8, NCCL_MAX_NCHANNELS=4, NCCL_BUFFSIZE=1).problems())
    assert set(found) == {"NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_BUFFSIZE"}
    assert not list(Nccl().problems())
