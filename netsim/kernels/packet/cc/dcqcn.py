"""DCQCN: Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM 2015.

The receiver of marked packets sends a congestion notification (CNP), at most one per queue pair and interval. The sender then cuts its
rate,

    R_T = R_C,   R_C = R_C (1 - alpha / 2),   alpha = (1 - g) alpha + g,

and without notifications alpha decays, alpha = (1 - g) alpha every `alpha_timer`. The rate comes back by two counters, one step per
`rate_timer` and one per `byte_counter` bytes sent: while both are below F, fast recovery R_C = (R_T + R_C) / 2; once one has passed F,
additive increase R_T += R_AI first; once both have, hyper increase R_T += R_HAI.

Timers are caught up with when the sender looks at its rate, in the order in which they would have fired, so that an idle flow costs
nothing.
"""

from typing import NamedTuple

from numba import njit

from netsim.kernels.packet import cc as hooks
from netsim.kernels.structs import Array

PARAMETERS = {
    "g": ("share", "0.00390625", "weight of the newest mark in alpha (1/256)"),
    "rate_ai": ("rate", "400 Mbps", "R_AI, step of additive increase (40 Mbps on the 40 Gbps links of the paper)"),
    "rate_hai": ("rate", "4 Gbps", "R_HAI, step of hyper increase"),
    "rate_min": ("rate", "100 Mbps", "least rate"),
    "alpha_timer": ("time", "55 us", "K, after which alpha decays without a notification"),
    "rate_timer": ("time", "55 us", "T, of the increase timer"),
    "byte_counter": ("size", "10 MB", "B, bytes per increase step"),
    "fast_recovery": ("number", "5", "F, steps of fast recovery"),
}
ACKS, CNPS, TELEMETRY = False, True, False
STATE = 16
RATE, LINE, TARGET, ALPHA, ALPHA_T, RATE_T, SENT, TIMER_STEPS, BYTE_STEPS, CUT = range(10)


class Parameters(NamedTuple):
    """Times in ps, rates in bytes/s."""

    g: float
    rate_ai: float
    rate_hai: float
    rate_min: float
    alpha_timer: float
    rate_timer: float
    byte_counter: float
    fast_recovery: float


@hooks.implements(Parameters, hooks.start)
def start(cc: Parameters, state: Array, f: int, line: float, base_rtt: int, hops: int, mtu: int) -> None:
    """Start at line rate, unlimited until the first notification."""
    o = 16 * f
    state[o + RATE] = state[o + LINE] = state[o + TARGET] = line
    state[o + ALPHA], state[o + CUT] = 1.0, 0.0


@njit(cache=True)
def increase(cc: Parameters, state: Array, o: int) -> None:
    """One step up."""
    most, least = max(state[o + TIMER_STEPS], state[o + BYTE_STEPS]), min(state[o + TIMER_STEPS], state[o + BYTE_STEPS])
    if least > cc.fast_recovery:
        state[o + TARGET] += (least - cc.fast_recovery) * cc.rate_hai
    elif most > cc.fast_recovery:
        state[o + TARGET] += cc.rate_ai
    state[o + TARGET] = min(state[o + TARGET], state[o + LINE])
    state[o + RATE] = min((state[o + RATE] + state[o + TARGET]) / 2, state[o + LINE])
    if state[o + LINE] - state[o + RATE] < 1e-3 * state[o + LINE] and state[o + TARGET] == state[o + LINE]:
        state[o + RATE], state[o + CUT] = state[o + LINE], 0.0


@njit(cache=True)
def catch_up(cc: Parameters, state: Array, o: int, t: int) -> None:
    """Fire the timers that are due by `t`."""
    while state[o + CUT] != 0.0:
        alpha_due, rate_due = state[o + ALPHA_T] + cc.alpha_timer, state[o + RATE_T] + cc.rate_timer
        if min(alpha_due, rate_due) > t:
            break
        if alpha_due <= rate_due:
            state[o + ALPHA], state[o + ALPHA_T] = (1 - cc.g) * state[o + ALPHA], alpha_due
        else:
            state[o + RATE_T] = rate_due
            state[o + TIMER_STEPS] += 1
            increase(cc, state, o)


@hooks.implements(Parameters, hooks.notify)
def notify(cc: Parameters, state: Array, f: int, t: int) -> None:
    """Cut the rate."""
    o = 16 * f
    if state[o + CUT] == 0.0:
        state[o + ALPHA_T] = t
        state[o + ALPHA] = 1.0
    catch_up(cc, state, o, t)
    state[o + TARGET] = state[o + RATE]
    state[o + RATE] = max(cc.rate_min, state[o + RATE] * (1 - state[o + ALPHA] / 2))
    state[o + ALPHA] = (1 - cc.g) * state[o + ALPHA] + cc.g
    state[o + ALPHA_T] = state[o + RATE_T] = t
    state[o + SENT] = state[o + TIMER_STEPS] = state[o + BYTE_STEPS] = 0.0
    state[o + CUT] = 1.0


@hooks.implements(Parameters, hooks.acknowledge)
def acknowledge(
    cc: Parameters, state: Array, f: int, t: int, rtt: int, packets: int, marked: bool, acked: int, sent: int, telemetry: Array, at: int
) -> None:
    """Acknowledgements do not matter."""


@hooks.implements(Parameters, hooks.gap)
def gap(cc: Parameters, state: Array, f: int, t: int, nbytes: int) -> int:
    """Bytes over the current rate."""
    o = 16 * f
    if state[o + CUT] == 0.0:
        return 0
    catch_up(cc, state, o, t)
    state[o + SENT] += nbytes
    if state[o + SENT] >= cc.byte_counter:
        state[o + SENT] -= cc.byte_counter
        state[o + BYTE_STEPS] += 1
        increase(cc, state, o)
    return int(nbytes * 1e12 / state[o + RATE] + 0.5)


@hooks.implements(Parameters, hooks.window)
def window(cc: Parameters, state: Array, f: int) -> float:
    """Only the rate is limited."""
    return 1e18
