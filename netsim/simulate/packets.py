"""A training run on the packet engine: calls that leave a node go to it packet by packet, calls inside a node stay fluid."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from netsim import parallel
from netsim.config import Run
from netsim.kernels.executor import Exec
from netsim.kernels.flow import Flow
from netsim.kernels.structs import COMM, LINK_TIERS, NIC, Array, Plan
from netsim.network.packet.engine import PacketEngine
from netsim.network.planes import PlaneEngine
from netsim.simulate.carried import Carried, Unbooked
from netsim.simulate.loop import ignored, run_engine
from netsim.simulate.model import Model
from netsim.simulate.sampler import Sampler
from netsim.simulate.share import Share, merged, merged_resent, together
from netsim.telemetry.channels import chosen, counted
from netsim.telemetry.frame import Samples, joined
from netsim.telemetry.series import Log
from netsim.telemetry.spool import Spool


class Played(NamedTuple):
    """What the packet engine leaves behind."""

    log: Log
    complete: bool
    counters: dict[str, Array]  # int64[L] each, over all ranks
    samples: dict[str, Samples]  # by counter
    resent: Array  # int64[K, 3] (communicator, end, packets sent again) of calls that lost any
    parallel: dict[str, Any]  # how the ranks worked together: see `share.together`


def external(model: Model, payload: int) -> Array:
    """int8[X]: 1 for every place whose call the packet engine moves: those that use NICs.

    A call over several rails with no more than a packet for each connection (the norm of the gradients: 4 bytes) is latency, not traffic.
    It stays with the fluid network, or it alone would tie all rail planes together.
    """
    moved = np.array([_is_traffic(plan, payload) for plan in model.table.plans] + [False])
    return moved[model.table.call_plan].astype(np.int8)


def _is_traffic(plan: Plan, payload: int) -> bool:
    outside = plan.edge_nic_src >= 0
    rails = np.unique(np.r_[plan.edge_nic_src[outside], plan.edge_nic_dst[outside]])
    return bool(outside.any()) and (len(rails) == 1 or int(plan.edge_bytes[outside].max()) > payload)


def play(
    run: Run, model: Model, gpus: Exec, scale_up: Flow, report: Callable[[float, int], None], stop: Callable[[], bool], spool: Spool
) -> Played:
    """Run to the end on all ranks; rank 0 returns what all counted."""
    world = parallel.world()
    calls = _external_calls(model, gpus)
    packets = PacketEngine(model.topology, model.routes, run.network, run.seed)
    packets.change_rates(*model.changes)
    planned = [(plan, members) for _, plan, members in calls]
    engine = PlaneEngine(packets, world, planned, run.simulate.nics_per_rank, stop, run.simulate.partition)
    handles = np.full(len(model.table.call_flow), -1, np.int64)
    uses, expected = _uses(model, gpus), 1.0
    for i, (place, plan, _) in enumerate(calls):
        handles[place] = i
        if engine.plays(i):
            expected += uses[place] * float((plan.edge_bytes * plan.edge_weight)[plan.edge_nic_src >= 0].sum()) / engine.parts
    first_nic, leaving = int(np.argmax(model.topology.vertex_kind == NIC)), model.topology.link_tier == LINK_TIERS.index("nic")
    leaving &= model.topology.link_src < first_nic + model.topology.n_nics
    expected *= 1 + run.network.header / run.network.payload

    def share() -> float:
        """Of the bytes that this rank's NICs will send, those that have left."""
        return min(1.0, float(packets.counters()["bytes"][leaving].sum()) / expected)

    names = counted(chosen(run.telemetry.channels))
    sampler = Sampler(engine, packets, run.telemetry.interval, names, spool)
    keep, carried = (spool.log, Carried(model, spool.clock)) if world.rank == 0 else (ignored, Unbooked())
    log, complete = run_engine(gpus, scale_up, engine, handles, report, lambda: engine.stopping, sampler, share, keep, carried)
    sampler.take(engine.now_ps // run.telemetry.interval)
    most = engine.n_sets * max(1, model.topology.n_nics // engine.n_sets // run.simulate.nics_per_rank)
    work = Share(engine.played_s, engine.waited_s, engine.exchanges, engine.exchanged_bytes, packets.windows, engine.n_sets, most)
    work = work._replace(hand_over_s=engine.hand_over_s)
    work = work.with_part(engine.part, engine.mates)
    mine = sampler.totals(), sampler.samples(), sampler.resent(), work
    everyone = world.gather(mine) or [mine]
    samples = {name: joined([part[1][name] for part in everyone]) for name in names}
    resent = merged_resent([part[2] for part in everyone])
    return Played(log, complete, merged([part[0] for part in everyone]), samples, resent, together([part[3] for part in everyone]))


def _uses(model: Model, gpus: Exec) -> Array:
    """How often each place is used in the whole run, int64[X]: by the rows of its group's first member."""
    table, programs, groups = model.table, model.work.programs, model.groups
    uses = np.zeros(len(table.call_flow), np.int64)
    row_program = np.searchsorted(programs.stream_ptr[:: programs.n_streams], np.arange(len(programs.kind)), side="right") - 1
    for dim, of in enumerate(groups.group_of):
        first = np.flatnonzero((of >= 0) & (groups.member_idx[groups.member_ptr[:-1]][of] == np.arange(len(of))))
        rows = np.flatnonzero((programs.kind == COMM) & (programs.dim == dim))
        for gpu in first.tolist():
            mine = rows[row_program[rows] == model.program[gpu]]
            np.add.at(uses, table.group_call_ptr[of[gpu]] + table.row_call[mine], gpus.iterations)
    return uses


def _external_calls(model: Model, gpus: Exec) -> list[tuple[int, Plan, Array]]:
    """(place, plan, members int32[R]) of every call that the packet engine moves."""
    table, groups = model.table, model.groups
    places = np.flatnonzero((gpus.call_external == 1) & (table.call_flow >= 0))
    of = np.searchsorted(table.group_call_ptr, places, side="right") - 1
    return [
        (place, table.plans[table.call_plan[place]], groups.member_idx[groups.member_ptr[group] : groups.member_ptr[group + 1]])
        for place, group in zip(places.tolist(), of.tolist(), strict=True)
    ]
