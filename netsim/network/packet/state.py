"""The tables of the packet engine as they are before anything has happened, and how they grow."""

import numpy as np

from netsim.config.network import Network
from netsim.kernels.packet import layout as k
from netsim.kernels.routing import first_nic, first_switch
from netsim.kernels.structs import GPU, NIC, Array, Topology
from netsim.network.packet import buffers

PMAX_ONE = 1 << 40
LINE = 64
ARENA = 1 << 26  # words of records; pages are only touched as rings need them


def build(topology: Topology, network: Network, thresholds: Array, seed: int) -> k.State:
    """Return the state of an idle fabric; `thresholds` is int64[L, 6]: xoff, xon, limit, delay, room of the output queue and
    credits of every link."""
    n_links, n_vertices = topology.link_src.size, topology.vertex_kind.size
    in_ptr, in_idx = _by(topology.link_dst, n_vertices)
    out_ptr, out_idx = _by(topology.link_src, n_vertices)
    link_input = np.empty(n_links, np.int64)
    link_input[in_idx] = np.arange(n_links) - in_ptr[topology.link_dst[in_idx]]
    ring = np.zeros((5 * n_links + topology.n_gpus) << k.RING, np.int64)
    ring[k.MASK :: 1 << k.RING] = -1
    blocks = (n_vertices + 31) >> k.BLOCK_SHIFT
    pfc = np.zeros((n_links, 1 << k.PFC), np.int64)
    pfc[:, [k.XOFF, k.XON, k.LIMIT, k.DELAY]] = thresholds[:, :4]
    return align(
        k.State(
            scal=_scalars(topology, network, seed),
            arena=np.empty(ARENA, np.int64),
            ring=ring,
            port=_ports(topology, network, thresholds[:, 4], thresholds[:, 5]).ravel(),
            count=np.zeros(n_links << k.COUNT, np.int64),
            pfc=pfc.ravel(),
            toggle=np.zeros(n_links << k.TOGGLES, np.int64),
            ps_per_byte=ps_per_byte(np.minimum(topology.link_rate, buffers.bus_rate(topology, network))),
            wire_next=np.full(n_links, k.NEVER),
            port_next=np.full(n_links, k.NEVER),
            receive_next=np.full(n_vertices, k.NEVER),
            send_next=np.full(n_vertices, k.NEVER),
            receive_block=np.full(blocks, k.NEVER),
            send_block=np.full(blocks, k.NEVER),
            link_src=topology.link_src.astype(np.int64),
            link_dst=topology.link_dst.astype(np.int64),
            link_input=link_input,
            in_ptr=in_ptr,
            in_idx=in_idx,
            out_ptr=out_ptr,
            out_idx=out_idx,
            path=np.zeros(16, np.int32),
            size=np.zeros(4, np.int32),
            tx=np.zeros(32, np.int64),
            rx=np.zeros(16, np.int64),
            cc=np.zeros(16),
            sent_ps=np.zeros(1, np.int64),
            telemetry=np.zeros(1, np.int64),
            edge=np.zeros(32, np.int64),
            seen=np.zeros(1, np.int64),
            hop_set=np.zeros(1, np.int32),
            set_ptr=np.zeros(1, np.int64),
            set_idx=np.zeros(1, np.int32),
            buffer=_buffers(topology, network, thresholds[:, 2]),
            flowlet=np.zeros(1, np.int64),
            dep_edge=np.zeros(1, np.int32),
            dep_lag=np.zeros(1, np.int32),
            dep_token=np.zeros(1, np.int32),
            rdep_edge=np.zeros(1, np.int32),
            rdep_lag=np.zeros(1, np.int32),
            rdep_token=np.zeros(1, np.int32),
            token=np.zeros(1, np.int64),
            call=np.zeros(16, np.int64),
            done=np.zeros(1, np.int64),
            live=np.zeros(1, np.int64),
            load=np.zeros(n_links, np.int64),
            log=np.zeros(4, np.int64),
            log_head=np.full(n_links, -1),
            scratch=np.zeros(1, np.int64),
            arrivals=np.zeros(2, np.int64),
            mine=np.ones(n_vertices, np.int64),
        )
    )


def align(state: k.State) -> k.State:
    """Return the state with every table at the start of a cache line, so that a row touches no more lines than it fills."""
    return k.State(*(_aligned(array) for array in state))


def _aligned(array: Array) -> Array:
    if array.ctypes.data % LINE == 0:
        return array
    raw = np.empty(array.nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    view = raw[start : start + array.nbytes].view(array.dtype)
    if array.size < ARENA:
        view[:] = array
    return view


def ps_per_byte(rate: Array) -> Array:
    """float64[L]: picoseconds that a byte takes on each link; 0 where the link has failed."""
    return np.divide(1e12, rate, out=np.zeros_like(rate), where=rate > 0)


def _buffers(topology: Topology, network: Network, limit: Array) -> Array:
    """(bytes that ports share, alpha) of every vertex, flat; headrooms are not shared."""
    n, own = topology.vertex_kind.size, np.where(limit < buffers.UNLIMITED, limit, 0)
    pool = topology.vertex_buffer - np.bincount(topology.link_dst, own, n) * (network.flow_control == "pfc")
    return np.stack([pool, np.full(n, round(network.alpha * 65536))], axis=1).astype(np.int64).ravel()


def _by(vertex: Array, n: int) -> tuple[Array, Array]:
    """CSR of links by one of their ends, in order of link number."""
    order = np.argsort(vertex, kind="stable")
    return np.searchsorted(vertex[order], np.arange(n + 1)).astype(np.int64), order


def _scalars(topology: Topology, network: Network, seed: int) -> Array:
    scal = np.zeros(64, np.int64)
    scal[k.MTU] = network.payload + network.header
    scal[k.PAYLOAD] = network.payload
    scal[k.CONTROL_SIZE] = network.control
    scal[k.FLOW_CONTROL] = {"none": k.NO_CONTROL, "pfc": k.PFC_ON, "credits": k.CREDITS_ON}[network.flow_control]
    if network.ecn is not None:
        scal[k.ECN_ON], scal[k.KMIN], scal[k.KMAX] = 1, network.ecn.kmin, network.ecn.kmax
        scal[k.PMAX_BITS] = round(network.ecn.pmax * PMAX_ONE)
    lossy = network.flow_control == "none"
    scal[k.SPREAD] = {"flow": k.BY_FLOW, "spray": k.SPRAY, "adaptive": k.ADAPTIVE, "flowlet": k.FLOWLET}[network.spreading]
    scal[k.FLOWLET_GAP] = network.flowlet_gap
    scal[k.ORDERED] = network.spreading == "flow" and not lossy
    scal[k.SHARED] = lossy and network.sharing == "dynamic"
    scal[k.POOLED] = network.flow_control == "pfc" and network.sharing == "dynamic"
    if lossy:
        scal[k.RECOVERY] = {"go_back_n": k.GO_BACK_N, "selective": k.SELECTIVE}[network.recovery.mode]
        scal[k.TIMEOUT] = network.recovery.timeout
    scal[k.SEED] = seed
    scal[k.ACK_EVERY] = network.ack_every
    scal[k.CNP_GAP] = network.cnp_interval
    scal[k.N_LINKS], scal[k.N_GPUS], scal[k.N_NICS] = topology.link_src.size, topology.n_gpus, topology.n_nics
    scal[k.N_VERTICES], scal[k.ARENA_SIZE] = topology.vertex_kind.size, ARENA
    scal[k.FIRST_NIC], scal[k.FIRST_SWITCH] = first_nic(topology), first_switch(topology)
    return scal


def _ports(topology: Topology, network: Network, room: Array, credit: Array) -> Array:
    mtu, data = network.payload + network.header, np.minimum(topology.link_rate, buffers.bus_rate(topology, network))
    port = np.zeros((topology.link_src.size, 1 << k.PORT), np.int64)
    port[:, k.SER] = np.floor(mtu * ps_per_byte(data) + 0.5)
    port[:, k.SER_CONTROL] = np.floor(network.control * ps_per_byte(topology.link_rate) + 0.5)
    port[:, k.LATENCY] = topology.link_latency
    port[:, k.READY] = port[:, k.READY_TAIL] = -1
    port[:, k.ROOM] = room
    kind = topology.vertex_kind[topology.link_dst]
    port[:, k.TO_HOST] = (kind == NIC) | (topology.vertex_kind[topology.link_dst] == GPU)
    port[:, k.CREDIT] = credit
    return port


def grown(array: Array, size: int, fill: int = 0) -> Array:
    """Return the array with room for at least `size` items; it doubles."""
    if size <= array.size:
        return array
    bigger = _aligned(np.full(max(size, 2 * array.size), fill, array.dtype))
    bigger[: array.size] = array
    return bigger
