"""From plans to what the fluid kernel sees: which links each bundle of each communicator loads, and how much its calls move.

A `Fluid` is structure only; `netsim.network.flow.state` makes a kernel state of it. Bundles of one footprint that load the same links with
the same weights and move the same bytes are one bundle (they share every pace), so 16 channels on one NVLink domain cost as much as one.
"""

from typing import NamedTuple

import numpy as np

from netsim.errors import InputError
from netsim.kernels import hashing
from netsim.kernels.edges import edge_links
from netsim.kernels.routing import scale_up_links
from netsim.kernels.structs import Array, Plan, Routes, Topology


class Fluid(NamedTuple):
    """F footprints, B bundles, N nodes, H calls over L links; the fields are those of `netsim.kernels.flow.Flow`."""

    capacity: Array  # float64[L]
    footprint_ptr: Array  # int64[F + 1]
    bundle_ptr: Array  # int64[B + 1]
    node_link: Array  # int32[N]
    node_coef: Array  # float64[N]
    call_footprint: Array  # int32[H]
    call_ptr: Array  # int64[H]
    call_launch: Array  # int64[H]
    call_fill: Array  # int64[H]
    volume: Array  # float64[...]
    volume_cap: Array  # float64[...]


class Builder:
    """Collects the footprints of many communicators, group by group of the same shape."""

    def __init__(self, topology: Topology, routes: Routes, qps: int = 1) -> None:
        """`qps`: queue pairs of a connection between NICs whose plan does not say."""
        self.topology, self.routes, self.qps = topology, routes, qps
        self._shapes: dict[tuple[bytes, ...], tuple[int, Array, Array]] = {}
        self._bundles = [0]  # per footprint
        self._nodes: list[Array] = []  # per bundle
        self._links: list[Array] = []
        self._coefs: list[Array] = []
        self._call_footprint: list[Array] = []
        self._call_rows: list[Array] = []
        self._launch: list[Array] = []
        self._fill: list[Array] = []
        self._volumes: list[Array] = []
        self._caps: list[Array] = []
        self.n_footprints = 0
        self.n_calls = 0

    def add(self, plan: Plan, members: Array, family: int = 0) -> tuple[Array, Array]:
        """Register one call for every row of `members` (int32[G, R], GPUs in rank order).

        Returns (calls int64[G], footprints int64[G]). Calls of the same groups (of one family: two
        communicators may have the same members) whose plans load the same links share footprints.
        """
        n_groups, n_bundles = len(members), len(plan.bundle_cap)
        heaviest = np.zeros(n_bundles, np.int64)
        np.maximum.at(heaviest, plan.edge_bundle, plan.edge_bytes)
        share = plan.edge_weight * plan.edge_bytes / np.maximum(heaviest, 1)[plan.edge_bundle]
        kind = np.unique(np.stack([heaviest.astype(np.float64), plan.bundle_cap]), axis=1, return_inverse=True)[1].ravel()
        edges = (plan.edge_src, plan.edge_dst, plan.edge_nic_src, plan.edge_nic_dst, plan.edge_qp, plan.edge_bundle, share, kind)
        key = (bytes([family]), (plan.qps or self.qps).to_bytes(8), members.tobytes(), *(array.tobytes() for array in edges))
        if key not in self._shapes:
            self._shapes[key] = self._footprints(plan, members, share, kind)
        first, counts, source = self._shapes[key]
        calls = np.arange(self.n_calls, self.n_calls + n_groups)
        footprints = np.arange(first, first + n_groups)
        self._call_footprint.append(footprints)
        self._call_rows.append(counts)
        self._launch.append(np.full(n_groups, plan.launch_ps))
        self._fill.append(np.full(n_groups, plan.fill_ps))
        self._volumes.append(heaviest[source].astype(np.float64))
        self._caps.append(plan.bundle_cap[source])
        self.n_calls += n_groups
        return calls, footprints

    def _footprints(self, plan: Plan, members: Array, share: Array, kind: Array) -> tuple[int, Array, Array]:
        """Lay out the bundles of every group; returns (first footprint, bundles per group, plan bundle of each bundle)."""
        group, bundle, link, coef = self._loads(plan, members, share)
        n_bundles, n_groups = len(plan.bundle_cap), len(members)
        row, link, coef = sum_by(group * n_bundles + bundle, link, coef)
        # bundles that are alike in a group become one
        print_ = hashing.mix(np.tile(kind, n_groups).astype(np.uint64) + np.uint64(1))
        np.add.at(print_, row, hashing.mix(hashing.mix(link.astype(np.uint64)) + coef.view(np.uint64)))
        owner = np.repeat(np.arange(n_groups), n_bundles)
        order = np.lexsort((np.arange(len(owner)), print_, owner))
        new = np.r_[True, (owner[order][1:] != owner[order][:-1]) | (print_[order][1:] != print_[order][:-1])]
        merged = np.empty(len(owner), np.int64)
        merged[order] = np.cumsum(new) - 1
        source = (order[new] % n_bundles).astype(np.int64)
        counts = np.bincount(owner[order[new]], minlength=n_groups)
        row, link, coef = sum_by(merged[row], link, coef)
        self._nodes.append(np.bincount(row, minlength=int(new.sum())))
        self._links.append(link.astype(np.int32))
        self._coefs.append(coef)
        self._bundles.extend(counts.tolist())
        first = self.n_footprints
        self.n_footprints += n_groups
        return first, counts, source

    def _loads(self, plan: Plan, members: Array, share: Array) -> tuple[Array, Array, Array, Array]:
        """Every (group, bundle, link, coef) of the plan's edges."""
        top = self.topology
        n_groups = len(members)
        src, dst = members[:, plan.edge_src], members[:, plan.edge_dst]
        inside = plan.edge_nic_src < 0
        groups = np.broadcast_to(np.arange(n_groups)[:, None], src.shape)
        bundles = np.broadcast_to(plan.edge_bundle[None, :], src.shape)
        shares = np.broadcast_to(share[None, :], src.shape)
        parts = []
        for links in scale_up_links(top, src[:, inside], dst[:, inside]):
            used = links >= 0
            parts.append((groups[:, inside][used], bundles[:, inside][used], links[used], shares[:, inside][used]))
        q = plan.qps or self.qps
        outside, lane = np.repeat(np.flatnonzero(~inside), q), np.tile(np.arange(q), np.count_nonzero(~inside))
        if outside.size:
            ptr, links = self._paths(plan, src[:, outside], dst[:, outside], outside, lane)
            hops = np.diff(ptr)
            parts.append(
                (
                    np.repeat(groups[:, outside].ravel(), hops),
                    np.repeat(bundles[:, outside].ravel(), hops),
                    links,
                    np.repeat(shares[:, outside].ravel() / q, hops),
                )
            )
        group, bundle, link, coef = (np.concatenate([np.ravel(part[i]) for part in parts]) for i in range(4))
        return group.astype(np.int64), bundle.astype(np.int64), link.astype(np.int64), coef.astype(np.float64)

    def _paths(self, plan: Plan, src: Array, dst: Array, outside: Array, lane: Array) -> tuple[Array, Array]:
        """Links of the edges between NICs, of each queue pair; a pair without a way is the user's mistake."""
        top = self.topology
        nic_src = np.ravel(src // top.gpus_per_node * top.nics_per_node + plan.edge_nic_src[outside])
        nic_dst = np.ravel(dst // top.gpus_per_node * top.nics_per_node + plan.edge_nic_dst[outside])
        qp = np.ravel(np.broadcast_to(plan.edge_qp[outside] + (lane << 32), src.shape))
        ptr, links = edge_links(top, self.routes, np.ravel(src), np.ravel(dst), nic_src, nic_dst, qp)
        lost = np.flatnonzero(np.diff(ptr) == 0)
        if len(lost):
            a, b = int(nic_src[lost[0]]), int(nic_dst[lost[0]])
            ends = " to ".join(f"nic n{nic // top.nics_per_node}.{nic % top.nics_per_node}" for nic in (a, b))
            raise InputError(f"topology: expected a way between all GPUs that communicate; got none from {ends} ({len(lost)} pairs in all)")
        return ptr, links

    def fluid(self) -> Fluid:
        """The structure of everything that was added."""

        def joined(parts: list[Array], dtype: type) -> Array:
            return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)

        nodes = joined(self._nodes, np.int64)
        return Fluid(
            capacity=self.topology.link_rate.astype(np.float64),
            footprint_ptr=np.cumsum(np.array(self._bundles, np.int64)),
            bundle_ptr=np.r_[0, np.cumsum(nodes)].astype(np.int64),
            node_link=joined(self._links, np.int32),
            node_coef=joined(self._coefs, np.float64),
            call_footprint=joined(self._call_footprint, np.int32),
            call_ptr=np.r_[0, np.cumsum(joined(self._call_rows, np.int64))[:-1]].astype(np.int64) if self.n_calls else np.zeros(0,
            np.int64), call_launch=joined(self._launch, np.int64),
            call_fill=joined(self._fill, np.int64),
            volume=joined(self._volumes, np.float64),
            volume_cap=joined(self._caps, np.float64),
        )


def sum_by(row: Array, link: Array, coef: Array) -> tuple[Array, Array, Array]:
    """Add up coefficients of the same (row, link); sorted by row, then link."""
    order = np.lexsort((link, row))
    row, link, coef = row[order], link[order], coef[order]
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (link[1:] != link[:-1])]) if len(row) else np.zeros(0, np.int64)
    return row[first], link[first], np.add.reduceat(coef, first) if len(first) else coef
