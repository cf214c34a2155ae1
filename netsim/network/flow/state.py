"""A fresh state of the fluid kernel for a given structure."""

import numpy as np

from netsim.kernels.flow import SHARED, Flow, schedule_changes
from netsim.kernels.structs import Array
from netsim.network.flow.fluid import Fluid

LOG_ROWS = 1 << 20


def state(fluid: Fluid, changes: tuple[Array, Array, Array], shared: bool = True) -> Flow:
    """Return a `Flow` at time 0.

    changes: (t_ps int64[C], link int32[C], rate float64[C]) timed changes of capacity, in time order. shared=False gives the ideal network,
    where every call moves as if it were alone.
    """
    n_links, n_bundles, n_nodes = len(fluid.capacity), len(fluid.bundle_ptr) - 1, len(fluid.node_link)
    n_footprints = len(fluid.footprint_ptr) - 1
    bundle_size, footprint_size = np.diff(fluid.bundle_ptr), np.diff(fluid.footprint_ptr)
    queue = 2 * (n_bundles + n_footprints + len(changes[0])) + 64
    rows = max(LOG_ROWS, 4 * n_bundles)
    flow = Flow(
        scalar=np.zeros(8, np.int64),
        capacity=fluid.capacity.copy(),
        head=np.full(n_links, -1, np.int64),
        footprint_ptr=fluid.footprint_ptr,
        footprint_left=np.zeros(n_footprints, np.int32),
        footprint_call=np.full(n_footprints, -1, np.int32),
        footprint_tag=np.zeros(n_footprints, np.int32),
        bundle_ptr=fluid.bundle_ptr,
        bundle_footprint=np.repeat(np.arange(n_footprints), footprint_size).astype(np.int32),
        cap=np.zeros(n_bundles),
        left=np.zeros(n_bundles),
        pace=np.zeros(n_bundles),
        since=np.zeros(n_bundles, np.int64),
        version=np.zeros(n_bundles, np.int32),
        moved=np.zeros(n_bundles),
        node_link=fluid.node_link,
        node_bundle=np.repeat(np.arange(n_bundles), bundle_size).astype(np.int32),
        node_coef=fluid.node_coef,
        node_next=np.full(n_nodes, -1, np.int64),
        node_prev=np.full(n_nodes, -1, np.int64),
        call_footprint=fluid.call_footprint,
        call_ptr=fluid.call_ptr,
        call_launch=fluid.call_launch,
        call_fill=fluid.call_fill,
        volume=fluid.volume,
        volume_cap=fluid.volume_cap,
        heap_t=np.zeros(queue, np.int64),
        heap_key=np.zeros(queue, np.int64),
        heap_version=np.zeros(queue, np.int32),
        done=np.zeros(n_footprints, np.int32),
        dirty=np.zeros(n_links, np.int32),
        change_t=changes[0].astype(np.int64),
        change_link=changes[1].astype(np.int32),
        change_rate=changes[2].astype(np.float64),
        log_bundle=np.zeros(rows, np.int32),
        log_t0=np.zeros(rows, np.int64),
        log_t1=np.zeros(rows, np.int64),
        log_pace=np.zeros(rows),
        log_tag=np.zeros(rows, np.int32),
        mark_bundle=np.zeros(n_bundles, np.int32),
        mark_link=np.zeros(n_links, np.int32),
        local_link=np.zeros(n_links, np.int32),
        part_bundle=np.zeros(n_bundles, np.int32),
        part_link=np.zeros(n_links, np.int32),
        part_ptr=np.zeros(n_bundles + 1, np.int64),
        part_idx=np.zeros(n_nodes, np.int32),
        part_coef=np.zeros(n_nodes),
        part_capacity=np.zeros(n_links),
        part_cap=np.zeros(n_bundles),
        part_pace=np.zeros(n_bundles),
        part_load=np.zeros(n_links),
        part_used=np.zeros(n_links),
    )
    flow.scalar[SHARED] = int(shared)
    schedule_changes(flow)
    return flow
