"""Small programs and networks written by hand, for tests of the executor."""

import numpy as np

from netsim.kernels import executor, flow
from netsim.kernels.structs import CATEGORIES, COMM, COMPUTE, HOST, TIMERS, Groups, Programs
from netsim.network.flow.fluid import Fluid
from netsim.network.flow.state import state as network_state
from netsim.simulate import gpus
from netsim.simulate.calls import CallTable

US = 1_000_000
TIMER_OF = {"forward": "forward-compute", "backward": "backward-compute", "dp": "all-grads-sync", "pp": "forward-recv"}


def compute(us, category="forward", deps=()):
    """A kernel of so many microseconds."""
    return COMPUTE, us * US, -1, 0, category, deps


def host(us):
    """What the host does for so many microseconds."""
    return HOST, us * US, -1, 0, "other", ()


def comm(dim, call=0, category="tp", deps=()):
    """A call on dimension `dim`."""
    return COMM, 0, dim, call, category, deps


def programs(*of_programs):
    """Programs from lists of streams of rows; a dependency is (stream, position) within the program, (stream, position, "start") where a
    start is enough.
    """
    n_streams = max(len(streams) for streams in of_programs)
    ptr, rows, place = [0], [], {}
    for p, streams in enumerate(of_programs):
        for s in range(n_streams):
            for i, row in enumerate(streams[s] if s < len(streams) else []):
                place[p, s, i] = len(rows)
                rows.append((p, row))
            ptr.append(len(rows))
    deps = [[~place[p, d[0], d[1]] if len(d) == 3 else place[p, d[0], d[1]] for d in row[5]] for p, row in rows]
    return Programs(
        n_programs=len(of_programs),
        n_streams=n_streams,
        stream_ptr=np.array(ptr),
        kind=np.array([row[0] for _, row in rows], np.int8),
        duration=np.array([row[1] for _, row in rows], np.int64),
        dim=np.array([row[2] for _, row in rows], np.int16),
        call=np.array([row[3] for _, row in rows], np.int32),
        category=np.array([CATEGORIES.index(row[4]) for _, row in rows], np.int8),
        microbatch=np.full(len(rows), -1, np.int16),
        layer=np.full(len(rows), -1, np.int16),
        timer=np.array([TIMERS.index(TIMER_OF.get(row[4], "other")) for _, row in rows], np.int8),
        dep_ptr=np.cumsum([0] + [len(d) for d in deps]),
        dep_idx=np.array([d for row in deps for d in row], np.int64),
    )


def groups(n_gpus, *dims):
    """Groups from lists of member lists, one list per dimension."""
    of = np.full((len(dims), n_gpus), -1, np.int32)
    members, dim_of = [], []
    for dim, groups_of_dim in enumerate(dims):
        for group in groups_of_dim:
            of[dim, group] = len(members)
            members.append(group)
            dim_of.append(dim)
    ptr = np.cumsum([0] + [len(m) for m in members])
    return Groups(of, ptr, np.array([g for m in members for g in m], np.int32), np.array(dim_of, np.int16))


def play(progs, grps, program, bytes_of_call, rate=1e6, sms=0, n_sms=100, slow=None, launch=0, fill=0):
    """Run on a network where every group has one link of `rate` bytes/s; call c of every group moves bytes_of_call[c]."""
    n_groups, n_calls = len(grps.group_dim), len(bytes_of_call)
    places = n_groups * n_calls
    fluid = Fluid(
        capacity=np.full(n_groups, float(rate)),
        footprint_ptr=np.arange(n_groups + 1),
        bundle_ptr=np.arange(n_groups + 1),
        node_link=np.arange(n_groups, dtype=np.int32),
        node_coef=np.ones(n_groups),
        call_footprint=np.repeat(np.arange(n_groups), n_calls).astype(np.int32),
        call_ptr=np.arange(places),
        call_launch=np.full(places, launch, np.int64),
        call_fill=np.full(places, fill, np.int64),
        volume=np.tile(np.array(bytes_of_call, float), n_groups),
        volume_cap=np.full(places, np.inf),
    )
    table = CallTable(
        row_call=progs.call,
        group_call_ptr=np.arange(n_groups) * n_calls,
        place_group=np.repeat(np.arange(n_groups), n_calls),
        place_call=np.tile(np.arange(n_calls), n_groups),
        call_flow=np.arange(places, dtype=np.int32),
        call_sms=np.full(places, sms, np.int16),
        call_launch=np.full(places, launch, np.int64),
        call_plan=np.zeros(places, np.int32),
        footprint_group=np.arange(n_groups, dtype=np.int32),
        flow_call_place=np.tile(np.arange(n_calls), n_groups),
        plans=(),
    )
    program = np.array(program, np.int32)
    slow = np.ones(len(program)) if slow is None else np.array(slow, float)
    x = gpus.state(progs, grps, table, program, slow, np.ones(len(program), bool), n_sms)
    none = np.zeros(0, np.int64)
    f = network_state(fluid, (none, none, none))
    executor.run(x, f, flow.NEVER - 1, none, none)
    assert x.scalar[executor.ENDS] == len(program), "deadlock"
    return x
