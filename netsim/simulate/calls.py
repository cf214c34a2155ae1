"""Every call that every group makes, planned as NCCL would and laid over the fabric.

Groups of one family (dimensions that name the same groups, such as the two ends of a pipeline transfer) share a list of calls; group g's
k-th is *place* `group_call_ptr[g] + k`. Groups whose members have the same positions in their nodes share a plan.
"""

from typing import NamedTuple

import numpy as np

from netsim import collectives
from netsim.config.nccl import Nccl
from netsim.kernels.structs import COMM, Array, Groups, Plan, Programs
from netsim.network.flow.fluid import Builder
from workload import Workload


class CallTable(NamedTuple):
    """Places (group, call) and what each stands for; G groups, X places, H flow calls, F footprints."""

    row_call: Array  # int32[I] place of a COMM row's call within its group
    group_call_ptr: Array  # int32[G]
    place_group: Array  # int64[X']  places in use
    place_call: Array  # int64[X'] call within the group
    call_flow: Array  # int32[X] flow call of a place, -1 where unused
    call_sms: Array  # int16[X]
    call_launch: Array  # int64[X]
    call_plan: Array  # int32[X] plan, -1 where unused
    footprint_group: Array  # int32[F]
    flow_call_place: Array  # int64[H] call within the group of a flow call
    plans: tuple[Plan, ...]

    def kept(self, group_rep: Array, group_class: Array, calls: Array, footprints: Array) -> "CallTable":
        """The table of representative groups, with flow calls and footprints renumbered."""
        flow_number = np.full(len(self.flow_call_place) + 1, -1)
        flow_number[calls] = np.arange(len(calls))
        width = self._width()
        places = [np.arange(self.group_call_ptr[g], self.group_call_ptr[g] + width[g]) for g in group_rep]
        old = np.concatenate(places) if places else np.zeros(0, np.int64)
        return self._replace(
            group_call_ptr=np.r_[0, np.cumsum([len(p) for p in places])[:-1]].astype(np.int64),
            call_flow=flow_number[self.call_flow[old]].astype(np.int32),
            call_sms=self.call_sms[old],
            call_launch=self.call_launch[old],
            call_plan=self.call_plan[old],
            footprint_group=group_class[self.footprint_group[footprints]].astype(np.int32),
            flow_call_place=self.flow_call_place[calls],
        )

    def _width(self) -> Array:
        return np.diff(np.r_[self.group_call_ptr, len(self.call_flow)])


def table(workload: Workload, builder: Builder, platform: collectives.Platform, nccl: Nccl, gpus_per_node: int) -> CallTable:
    """Plan and register all calls of a workload."""
    programs, groups = workload.programs, workload.groups
    family = _families(groups)
    used, row_call = _calls_of_families(programs, family)
    n_groups = len(groups.group_dim)
    width = np.array([len(used.get(int(d), ())) for d in groups.group_dim], np.int64)
    group_call_ptr = np.r_[0, np.cumsum(width)[:-1]].astype(np.int64) if n_groups else np.zeros(0, np.int64)
    n_places = int(width.sum())
    call_flow = np.full(n_places, -1, np.int32)
    call_plan = np.full(n_places, -1, np.int32)
    sms, launch = np.zeros(n_places, np.int16), np.zeros(n_places, np.int64)
    footprint_group: list[Array] = []
    flow_place: list[Array] = []
    plans: list[Plan] = []
    first_member_program = workload.gpu_program[groups.member_idx[groups.member_ptr[:-1]]]
    for dim, calls in used.items():
        for shape, numbers, members in _shapes(groups, dim, gpus_per_node):
            for place, call in enumerate(calls):
                mine = np.isin(first_member_program[numbers], _programs_with(programs, family, dim, call))
                if not mine.any():
                    continue
                communicator = collectives.Communicator(*shape, ranks=int(workload.calls.comm_ranks[call]))
                plan = collectives.plan(workload.calls.op[call], int(workload.calls.nbytes[call]), communicator, platform, nccl)
                flow_calls, footprints = builder.add(plan, np.ascontiguousarray(members[mine]), dim)
                places = group_call_ptr[numbers[mine]] + place
                call_flow[places], call_plan[places] = flow_calls, len(plans)
                sms[places], launch[places] = plan.channels, plan.launch_ps
                flow_place.append(np.full(len(flow_calls), place))
                _own(footprint_group, footprints, numbers[mine])
                plans.append(plan)
    place_group = np.repeat(np.arange(n_groups), width)
    in_use = np.flatnonzero(call_flow >= 0)
    return CallTable(
        row_call=row_call,
        group_call_ptr=group_call_ptr,
        place_group=place_group[in_use],
        place_call=(np.arange(n_places) - group_call_ptr[place_group])[in_use] if n_places else in_use,
        call_flow=call_flow,
        call_sms=sms,
        call_launch=launch,
        call_plan=call_plan,
        footprint_group=np.concatenate(footprint_group).astype(np.int32) if footprint_group else np.zeros(0, np.int32),
        flow_call_place=np.concatenate(flow_place) if flow_place else np.zeros(0, np.int64),
        plans=tuple(plans),
    )


def _own(footprint_group: list[Array], footprints: Array, numbers: Array) -> None:
    """Note the groups of new footprints; shared ones have been noted before."""
    known = sum(len(part) for part in footprint_group)
    if len(footprints) and footprints[0] >= known:
        footprint_group.append(numbers)


def _families(groups: Groups) -> Array:
    """For each dimension the number by which its groups are listed in `group_dim`."""
    family = np.arange(len(groups.group_of))
    for dim, of in enumerate(groups.group_of):
        listed = np.unique(groups.group_dim[of[of >= 0]])
        assert len(listed) <= 1, f"groups of dimension {dim} are listed under dimensions {listed}"
        if len(listed):
            family[dim] = listed[0]
    return family


def _calls_of_families(programs: Programs, family: Array) -> tuple[dict[int, list[int]], Array]:
    """The calls of each family in ascending order, and each COMM row's place among them."""
    rows = np.flatnonzero(programs.kind == COMM)
    of = family[programs.dim[rows]]
    used: dict[int, list[int]] = {}
    row_call = np.full(len(programs.kind), -1, np.int32)
    for dim in np.unique(of):
        mine = rows[of == dim]
        calls, place = np.unique(programs.call[mine], return_inverse=True)
        used[int(dim)] = calls.tolist()
        row_call[mine] = place.ravel()
    return used, row_call


def _programs_with(programs: Programs, family: Array, dim: int, call: int) -> Array:
    """Programs that make a call on a family's groups."""
    rows = np.flatnonzero((programs.kind == COMM) & (programs.call == call))
    rows = rows[family[programs.dim[rows]] == dim]
    return np.unique(np.searchsorted(programs.stream_ptr[:: programs.n_streams], rows, side="right") - 1)


def _shapes(groups: Groups, dim: int, gpus_per_node: int) -> list[tuple[tuple[tuple[int, ...], tuple[int, ...]], Array, Array]]:
    """Groups of a family by shape: ((node, local) of the members, group numbers, members int32[G, R])."""
    found = []
    numbers = np.flatnonzero(groups.group_dim == dim)
    sizes = np.diff(groups.member_ptr)[numbers]
    for size in np.unique(sizes):
        mine = numbers[sizes == size]
        members = groups.member_idx[groups.member_ptr[mine][:, None] + np.arange(size)]
        node, local = members // gpus_per_node, members % gpus_per_node
        step = np.diff(node, axis=1)
        if (step >= 0).all():
            relative = np.concatenate([np.zeros((len(mine), 1), np.int64), np.cumsum(step > 0, axis=1)], axis=1)
        else:
            relative = np.array([[list(dict.fromkeys(row)).index(n) for n in row] for row in node.tolist()])
        shapes, which = np.unique(np.concatenate([relative, local], axis=1), axis=0, return_inverse=True)
        for i, shape in enumerate(shapes):
            here = which.ravel() == i
            found.append(((tuple(shape[:size].tolist()), tuple(shape[size:].tolist())), mine[here], members[here]))
    return found
