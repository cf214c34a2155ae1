"""Plans: what a call of a collective makes the machine do."""

import importlib
from functools import lru_cache

import numpy as np

from netsim.collectives.call import Call
from netsim.collectives.geometry import geometry
from netsim.collectives.platform import Communicator, Platform, layout, trays
from netsim.collectives.tuner import FUNCTION, case_of, choose
from netsim.config.nccl import Nccl
from netsim.kernels.structs import Plan

P2P = ("all_to_all", "gather", "scatter", "sendrecv", "ring_shift")
"""Operations that are grouped sends and receives."""


def carrier(comm: Communicator, platform: Platform) -> Communicator:
    """Return the communicator that carries a call of fewer members: one GPU per node where they sit on different nodes, else one node."""
    if comm.size == len(comm.node):
        return comm
    if len(set(comm.node)) == 1 and comm.size <= platform.gpus_per_node:
        return Communicator((0,) * comm.size, tuple(range(comm.size)))
    width = 2 if len(set(comm.node)) == 1 else 1
    members = range(comm.size)
    return Communicator(tuple(m // width for m in members), tuple((comm.local[0] + m % width) % platform.gpus_per_node for m in members))


def _rail(comm: Communicator, platform: Platform, nccl: Nccl) -> int:
    """The rail that a communicator of one GPU per node stays on, where rails are alike: every GPU has a NIC of its own; else 0.

    Its plan is that of rail 0 on other NICs. A job has a communicator for data parallelism and for the pipeline on every rail.
    """
    alike = platform.nics_per_node == platform.gpus_per_node and not nccl.NCCL_GRAPH_FILE
    return comm.local[0] if alike and len(set(comm.local)) == 1 and len(set(comm.node)) == len(comm.node) else 0


@lru_cache(maxsize=512)
def plan(op: str, nbytes: int, comm: Communicator, platform: Platform, nccl: Nccl) -> Plan:
    """Return the plan of a call.

    `nbytes` is the buffer of an all_reduce, broadcast or reduce; the output of an all_gather; the input of a reduce_scatter; the send
    buffer of one rank of an all_to_all, gather or scatter (root's); the message of a sendrecv (member 0 to member 1) or ring_shift (every
    member to the next).
    """
    rail = _rail(comm, platform, nccl)
    if rail == 0:
        return build(op, nbytes, comm, platform, nccl)
    first = plan(op, nbytes, comm._replace(local=(0,) * len(comm.local)), platform, nccl)
    moved = {name: np.where((nic := getattr(first, name)) < 0, nic, nic + np.int32(rail)) for name in ("edge_nic_src", "edge_nic_dst")}
    return first._replace(**moved)


def build(op: str, nbytes: int, comm: Communicator, platform: Platform, nccl: Nccl) -> Plan:
    """Return the plan of a call, made for this communicator; the arguments are those of `plan`."""
    if nccl.NCCL_MNNVL_ENABLE == 0 and platform.gpus_per_node > 8:
        comm = trays(comm)
    if not nccl.p2p:
        platform = platform.without_p2p()
    if op in P2P:
        case = case_of(op, carrier(comm, platform), platform, nccl)
        algorithm, protocol, channels = "p2p", "simple", case.channels
    else:
        assert op in FUNCTION, op
        choice = choose(op, nbytes, comm, platform, nccl)
        case = case_of(op, comm, platform, nccl)
        algorithm, protocol, channels = choice.algorithm, choice.protocol, choice.channels
    call = Call(
        op, nbytes, layout(comm, platform), platform, nccl, case.graphs, case.channels, channels, algorithm,
        geometry(protocol, nccl), platform.figures(nccl), comm.size, case.place.nodes,
    )  # fmt: skip
    built: Plan = importlib.import_module(f"netsim.collectives.algorithms.{algorithm}").build(call)
    return built._replace(qps=nccl.qps)
