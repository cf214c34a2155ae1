"""Priority flow control: which inputs of a switch must pause their senders.

Thresholds count the bytes of an input that are in the switch, in whatever queue, so they depend on departures of several ports. A port
notes what left each input. Where an input may have crossed a threshold in a window, its arrivals and departures are put in time order
afterwards: a pause reaches the sender a latency later, that is in a later window. At one moment: what left because it
arrived earlier, then arrivals, then what left at once.

* Static: an input pauses its sender when it holds more than xoff, and lets it go on at or below xon.
* Pooled: inputs share what the headrooms leave of the buffer. A packet joins the pool if its input then has no more there than

    alpha x (free bytes of the pool)

  and the input is not in its headroom; else it goes into the headroom of its input, and the sender is paused. What leaves an input leaves
  the headroom first. The sender goes on when the headroom is empty and the input's share of the pool is `xon_offset` below the
  threshold of that moment, or nothing. Thresholds are looked at when the input's own packets come and go. Source: the ingress
  admission of commodity switches as public models have it, such as `switch-mmu` of the ns-3 of Li et al., "HPCC: high precision
  congestion control", SIGCOMM 2019; buffer profiles of SONiC name the same parameters (dynamic_th, xon_offset, xoff).
"""

from numba import njit

from netsim.kernels.packet import layout as K
from netsim.kernels.packet.port import HOT, note, packet_bytes, wake_port
from netsim.kernels.packet.tables import Tables


@njit(cache=True, forceinline=True)
def near(s: Tables, link: int) -> bool:
    """Whether an input that shares no buffer may cross a threshold in this window."""
    o = link << K.PFC
    return s.scal[K.POOLED] == 0 and (s.pfc[o + K.SENT_OFF] != 0 or s.pfc[o + K.HELD] + s.pfc[o + K.ARRIVED] > s.pfc[o + K.XOFF])


@njit(cache=True)
def crowded(s: Tables, v: int) -> bool:
    """Whether a pooled input of switch `v` is paused, or would be if all that has come were there at once."""
    total, most = 0, 0
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        o = s.in_idx[i] << K.PFC
        if s.pfc[o + K.SENT_OFF] != 0:
            return True
        held = s.pfc[o + K.HELD] + s.pfc[o + K.ARRIVED]
        total, most = total + held, max(most, held)
    free = s.buffer[2 * v] - total
    return free < 0 or most << 16 > s.buffer[2 * v + 1] * free


@njit(cache=True)
def watch(s: Tables, link: int, before: int) -> None:
    """Log what has arrived on `link` since ring position `before`, and have its departures logged."""
    arena, ring, o = s.arena, s.ring, link << K.RING
    s.pfc[(link << K.PFC) + K.SENT_OFF] |= HOT
    s.log_head[link] = -1
    for i in range(before, ring[o + K.HEAD]):
        k = ring[o + K.BASE] + ((i & ring[o + K.MASK]) << 1)
        if arena[k + 1] & K.LOST == 0:
            note(s, link, arena[k] * 4 + 1, -packet_bytes(s, arena[k + 1]), link)


@njit(cache=True)
def watch_all(s: Tables, v: int) -> None:
    """Watch all inputs of a switch, from where `BEFORE` says."""
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        watch(s, s.in_idx[i], s.pfc[(s.in_idx[i] << K.PFC) + K.BEFORE])


@njit(cache=True, forceinline=True)
def settle_account(s: Tables, link: int) -> None:
    """Bring the account of an input up to date after a window, and send pauses and resumes to its sender."""
    pfc, o = s.pfc, link << K.PFC
    if pfc[o + K.SENT_OFF] & HOT == 0:
        pfc[o + K.HELD] += pfc[o + K.ARRIVED] - pfc[o + K.DEPARTED]
    elif s.scal[K.POOLED] == 0:
        crossings(s, link)
    else:
        pfc[o + K.SENT_OFF] &= ~HOT
    pfc[o + K.ARRIVED] = 0
    pfc[o + K.DEPARTED] = 0


@njit(cache=True)
def in_order(s: Tables, n: int) -> None:
    """Sort the `n` log rows that `scratch` names by (key, place)."""
    log, order, gap = s.log, s.scratch, n >> 1 if n > 16 else 1
    while gap > 0:
        for i in range(gap, n):
            g, j = order[i], i
            key, place = log[g << 2], log[(g << 2) + 3]
            while j >= gap:
                h = order[j - gap] << 2
                if log[h] < key or (log[h] == key and log[h + 3] <= place):
                    break
                order[j] = order[j - gap]
                j -= gap
            order[j] = g
        gap = 0 if gap == 1 else max(1, gap * 5 // 11)


@njit(cache=True)
def crossings(s: Tables, link: int) -> None:
    """Go through arrivals and departures of an input in time order."""
    pfc, log, o = s.pfc, s.log, link << K.PFC
    n, g = 0, s.log_head[link]
    while g >= 0:
        s.scratch[n] = g
        n += 1
        g = log[(g << 2) + 2]
    for i in range(n >> 1):
        s.scratch[i], s.scratch[n - 1 - i] = s.scratch[n - 1 - i], s.scratch[i]
    in_order(s, n)
    held, off = pfc[o + K.HELD], pfc[o + K.SENT_OFF] & 1
    for i in range(n):
        g = s.scratch[i] << 2
        held -= log[g + 1]
        if off == 0 and held > pfc[o + K.XOFF]:
            off = 1
        elif off == 1 and held <= pfc[o + K.XON]:
            off = 0
        else:
            if held > pfc[o + K.LIMIT]:
                overrun(s, link, log[g] >> 2)
            continue
        toggle(s, link, (log[g] >> 2) + pfc[o + K.DELAY])
    pfc[o + K.HELD], pfc[o + K.SENT_OFF] = held, off


@njit(cache=True)
def pool_crossings(s: Tables, v: int) -> None:
    """Go through arrivals and departures of all inputs of a switch in time order, with the pool that they share."""
    if s.scal[K.LOG_TOP] == 0:
        return
    pfc, log, alpha, free = s.pfc, s.log, s.buffer[2 * v + 1], s.buffer[2 * v]
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        o = s.in_idx[i] << K.PFC
        free -= pfc[o + K.HELD] - pfc[o + K.OVER]
    for g in range(s.scal[K.LOG_TOP]):
        s.scratch[g] = g
    in_order(s, s.scal[K.LOG_TOP])
    for i in range(s.scal[K.LOG_TOP]):
        g = s.scratch[i] << 2
        t, came, link = log[g] >> 2, -log[g + 1], log[g + 3] & ((1 << 32) - 1)
        o = link << K.PFC
        off, mine = pfc[o + K.SENT_OFF] & 1, pfc[o + K.HELD] - pfc[o + K.OVER]
        pfc[o + K.HELD] += came
        if came < 0:
            over = min(pfc[o + K.OVER], -came)
            pfc[o + K.OVER] -= over
            free, mine = free - came - over, mine + came + over
            change = off == 1 and pfc[o + K.OVER] == 0 and (mine == 0 or (mine + pfc[o + K.XON]) << 16 <= alpha * free)
        elif pfc[o + K.OVER] > 0 or came > free or (mine + came) << 16 > alpha * free:
            pfc[o + K.OVER] += came
            change = off == 0
            if pfc[o + K.OVER] > pfc[o + K.LIMIT]:
                overrun(s, link, t)
        else:
            free -= came
            change = False
        if change:
            pfc[o + K.SENT_OFF] ^= 1
            toggle(s, link, t + pfc[o + K.DELAY])


@njit(cache=True)
def let_go_on(s: Tables, v: int, t: int) -> None:
    """Resume the senders of switch `v` whose packets have been thrown away, between two windows, and so left their inputs."""
    pfc, free = s.pfc, s.buffer[2 * v]
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        o = s.in_idx[i] << K.PFC
        free -= pfc[o + K.HELD] - pfc[o + K.OVER]
    for i in range(s.in_ptr[v], s.in_ptr[v + 1]):
        o = s.in_idx[i] << K.PFC
        mine = pfc[o + K.HELD] - pfc[o + K.OVER]
        low = pfc[o + K.HELD] <= pfc[o + K.XON]
        if s.scal[K.POOLED] != 0:
            low = pfc[o + K.OVER] == 0 and (mine == 0 or (mine + pfc[o + K.XON]) << 16 <= s.buffer[2 * v + 1] * free)
        if pfc[o + K.SENT_OFF] != 0 and low:
            pfc[o + K.SENT_OFF] = 0
            toggle(s, s.in_idx[i], t + pfc[o + K.DELAY])


@njit(cache=True)
def overrun(s: Tables, link: int, t: int) -> None:
    """The headroom of an input was too small, first at `t`."""
    if s.scal[K.ERROR] == 0:
        s.scal[K.ERROR], s.scal[K.ERROR_LINK], s.scal[K.ERROR_T] = K.HEADROOM, link, t


@njit(cache=True)
def toggle(s: Tables, link: int, t: int) -> None:
    """Pause the sender of `link` at `t`, or let it go on if it is paused then."""
    q = link << K.PORT
    tail = s.port[q + K.TOGGLE_TAIL]
    if tail - s.port[q + K.TOGGLE_HEAD] >= 1 << K.TOGGLES:
        s.scal[K.ERROR], s.scal[K.ERROR_LINK], s.scal[K.ERROR_T] = K.TOO_MANY_PAUSES, link, t
        return
    s.toggle[(link << K.TOGGLES) + (tail & ((1 << K.TOGGLES) - 1))] = t
    s.port[q + K.TOGGLE_TAIL] = tail + 1
    wake_port(s, link, t)
