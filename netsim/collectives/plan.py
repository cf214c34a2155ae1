"""Plans: what a call of a collective makes the machine do."""

import importlib
from functools import lru_cache

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


@lru_cache(maxsize=512)
def plan(op: str, nbytes: int, comm: Communicator, platform: Platform, nccl: Nccl) -> Plan:
    """Return the plan of a call.

    `nbytes` is the buffer of an all_reduce, broadcast or reduce; the output of an all_gather; the input of a reduce_scatter; the send
    buffer of one rank of an all_to_all, gather or scatter (root's); the message of a sendrecv (member 0 to member 1) or ring_shift (every
    member to the next).
    """
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
    build = importlib.import_module(f"netsim.collectives.algorithms.{algorithm}").build
    built: Plan = build(call)
    return built._replace(qps=nccl.qps)
