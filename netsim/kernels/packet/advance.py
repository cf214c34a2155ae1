"""The engine's clock: windows in which every vertex is played once, and jumps over the time in which nothing happens.

A window [T, E) starts at the next thing that happens anywhere. Its order: switches are played, NICs receive, GPUs take events, then, if a
call has completed at t, E becomes t so that what the caller starts then is not late; then NICs send. Links into hosts may be shorter than
the window, because the hosts look at them after the switches; every other link is at least as long as the window, so that what leaves in
it arrives at a switch in a later one. Vertices without anything to do are passed over in blocks of 32.
"""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.calls import gpu
from netsim.kernels.packet.host import uplink
from netsim.kernels.packet.receive import receive
from netsim.kernels.packet.ring import head_time
from netsim.kernels.packet.switch import switch
from netsim.kernels.packet.tables import Tables
from netsim.kernels.structs import Array


@njit(cache=True)
def advance(s: Tables, cc: tuple, until: int) -> int:
    """Play up to `until`, or up to the first completion of a call if that is not later; returns that time and leaves it in NOW."""
    scal = s.scal
    n_gpus, first_nic = scal[K.N_GPUS], scal[K.FIRST_NIC]
    first_switch, n_vertices = scal[K.FIRST_SWITCH], scal[K.N_VERTICES]
    n_blocks = (n_vertices + 31) >> K.BLOCK_SHIFT
    while scal[K.ERROR] == 0:
        limit = min(until, first_done(s))
        start = min(earliest(s.receive_block, n_blocks), earliest(s.send_block, n_blocks))
        if start > limit:
            break
        end = min(start + window(s), limit + 1)
        scal[K.WINDOWS] += 1
        switches(s, first_switch, n_vertices, min(end, limit))
        hosts_receive(s, first_nic, first_switch, end, False)
        hosts_receive(s, 0, n_gpus, end, True)
        limit = min(limit, first_done(s))
        if start >= limit:
            break
        end = min(end, limit)
        hosts_send(s, cc, first_nic, first_switch, end)
    scal[K.NOW] = max(scal[K.NOW], min(until, first_done(s)))
    return scal[K.NOW]


@njit(cache=True, forceinline=True)
def window(s: Tables) -> int:
    """Return how long a window may be: links inside nodes count only while a call uses them."""
    return s.scal[K.WINDOW_PS] if s.scal[K.INSIDE_CALLS] == 0 else s.scal[K.INSIDE_WINDOW]


@njit(cache=True)
def earliest(block: Array, n: int) -> int:
    """Return the least time of all blocks."""
    t = K.NEVER
    for b in range(n):
        t = min(t, block[b])
    return t


@njit(cache=True)
def first_done(s: Tables) -> int:
    """Return when the first of the completed calls completed, NEVER where there is none or nobody waits for parts of calls."""
    t = K.NEVER
    if s.scal[K.IN_PARTS] != 0:
        return t
    for i in range(s.scal[K.DONE_CALLS]):
        t = min(t, s.call[(s.done[i] << K.CALL) + K.LAST_PS])
    return t


@njit(cache=True, inline="always")
def settle(next_time: Array, block: Array, b: int, n: int) -> None:
    """Make a block's time exact."""
    t = K.NEVER
    for v in range(b << K.BLOCK_SHIFT, min((b + 1) << K.BLOCK_SHIFT, n)):
        t = min(t, next_time[v])
    block[b] = t


@njit(cache=True, inline="always")
def hosts_receive(s: Tables, first: int, last: int, end: int, gpus: bool) -> None:
    """Let NICs take packets, or GPUs take messages and events, that come before `end`."""
    for b in range(first >> K.BLOCK_SHIFT, (last + 31) >> K.BLOCK_SHIFT):
        if s.receive_block[b] >= end:
            continue
        for v in range(max(first, b << K.BLOCK_SHIFT), min(last, (b + 1) << K.BLOCK_SHIFT)):
            if s.receive_next[v] < end:
                if gpus:
                    gpu_receive(s, v, end)
                else:
                    nic_receive(s, v, end)
        settle(s.receive_next, s.receive_block, b, s.scal[K.N_VERTICES])


@njit(cache=True, inline="always")
def nic_receive(s: Tables, v: int, end: int) -> None:
    """Let a NIC take what its links bring before `end`."""
    more = K.NEVER
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        link = s.in_idx[i]
        if s.wire_next[link] < end:
            receive(s, link, end)
        more = min(more, s.wire_next[link])
    s.receive_next[v] = more


@njit(cache=True, inline="always")
def gpu_receive(s: Tables, g: int, end: int) -> None:
    """Let a GPU take its events in time order, before `end`."""
    arena, ring, n_links = s.arena, s.ring, s.scal[K.N_LINKS]
    o = (5 * n_links + g) << K.RING
    while ring[o + K.HEAD] < ring[o + K.TAIL]:
        k = ring[o + K.BASE] + ((ring[o + K.HEAD] & ring[o + K.MASK]) << 1)
        t, meta = arena[k], arena[k + 1]
        if t >= end:
            break
        ring[o + K.HEAD] += 1
        gpu(s, g, t, meta)
    s.receive_next[g] = head_time(arena, ring, 5 * n_links + g)


@njit(cache=True, inline="always")
def hosts_send(s: Tables, cc: tuple, first: int, last: int, end: int) -> None:
    """Play the sending ports of NICs up to `end`."""
    for b in range(first >> K.BLOCK_SHIFT, (last + 31) >> K.BLOCK_SHIFT):
        if s.send_block[b] >= end:
            continue
        for v in range(max(first, b << K.BLOCK_SHIFT), min(last, (b + 1) << K.BLOCK_SHIFT)):
            if s.send_next[v] >= end:
                continue
            more = K.NEVER
            for i in range(s.out_ptr[v], s.out_ptr[v + 1]):
                link = s.out_idx[i]
                if s.port_next[link] < end:
                    uplink(s, cc, link, end)
                more = min(more, s.port_next[link])
            s.send_next[v] = more
        settle(s.send_next, s.send_block, b, s.scal[K.N_VERTICES])


@njit(cache=True, inline="always")
def switches(s: Tables, first: int, last: int, end: int) -> None:
    """Play switches up to `end`."""
    for b in range(first >> K.BLOCK_SHIFT, (last + 31) >> K.BLOCK_SHIFT):
        if s.send_block[b] >= end:
            continue
        for v in range(max(first, b << K.BLOCK_SHIFT), min(last, (b + 1) << K.BLOCK_SHIFT)):
            if s.send_next[v] < end:
                switch(s, v, end)
        settle(s.send_next, s.send_block, b, s.scal[K.N_VERTICES])
