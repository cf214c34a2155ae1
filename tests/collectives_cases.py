"""Machines, communicators and sums over plans that the tests of collectives share."""

import numpy as np

from netsim.collectives import Communicator, Platform
from netsim.kernels.structs import Plan

H100 = Platform("hopper", 8, 8, 50e9)
A100 = Platform("ampere", 8, 8, 25e9, "amd", 300e9, 4)
B200 = Platform("blackwell", 8, 8, 50e9, "intel", 900e9, 5)
B300 = Platform("blackwell", 8, 8, 100e9, "intel", 900e9, 6)
MACHINES = {"H100": H100, "A100": A100, "B200": B200, "B300": B300}


def comm(nodes: int, width: int = 8) -> Communicator:
    """The first `width` GPUs of `nodes` nodes, ranks node by node."""
    return Communicator(tuple(n for n in range(nodes) for _ in range(width)), tuple(g for _ in range(nodes) for g in range(width)))


def nic_bytes(plan: Plan, c: Communicator, end: str = "src", nics: int = 8) -> np.ndarray:
    """Bytes that every NIC sends (or receives), int64[nodes, nics]."""
    node, nic = np.array(c.node)[getattr(plan, f"edge_{end}")], getattr(plan, f"edge_nic_{end}")
    net = nic >= 0
    total = np.zeros((max(c.node) + 1, nics), np.int64)
    np.add.at(total, (node[net], nic[net]), (plan.edge_bytes * plan.edge_weight)[net])
    return total


def nic_messages(plan: Plan, c: Communicator, nics: int = 8) -> np.ndarray:
    """Messages that every NIC sends."""
    return nic_bytes(plan._replace(edge_bytes=plan.edge_msgs.astype(np.int64)), c, "src", nics)


def nvlink_bytes(plan: Plan, ranks: int, end: str = "src") -> np.ndarray:
    """Bytes that every GPU sends (or receives) over the scale-up links."""
    inside = plan.edge_nic_src < 0
    total = np.zeros(ranks, np.int64)
    np.add.at(total, getattr(plan, f"edge_{end}")[inside], (plan.edge_bytes * plan.edge_weight)[inside])
    return total


def cross_rail_bytes(plan: Plan) -> int:
    """Bytes that leave on one rail and arrive on another."""
    crossed = plan.edge_nic_src != plan.edge_nic_dst
    return int((plan.edge_bytes * plan.edge_weight)[crossed].sum())


def play(plan: Plan) -> np.ndarray:
    """Play a plan message by message, all that may leave at once; returns how many messages of each edge were delivered.

    The oracle of what `Plan` promises: message j leaves when its dependencies have arrived and message j - window has been consumed.
    """
    edges = len(plan.edge_src)
    sent = np.zeros(edges, np.int64)
    users: list[list[tuple[int, int]]] = [[] for _ in range(edges)]
    for e in range(edges):
        for d in range(plan.dep_ptr[e], plan.dep_ptr[e + 1]):
            users[plan.dep_idx[d]].append((e, int(plan.dep_lag[d])))
    moved = True
    while moved:
        moved, arrived = False, sent.copy()
        for e in range(edges):
            if sent[e] == plan.edge_msgs[e]:
                continue
            ready = all(sent[e] - plan.dep_lag[d] < arrived[plan.dep_idx[d]] for d in range(plan.dep_ptr[e], plan.dep_ptr[e + 1]))
            oldest = sent[e] - plan.edge_window[e]
            consumed = oldest < 0 or all(arrived[u] > oldest + lag or oldest + lag >= plan.edge_msgs[u] for u, lag in users[e])
            if ready and consumed and oldest < arrived[e]:
                sent[e] += 1
                moved = True
    return sent
