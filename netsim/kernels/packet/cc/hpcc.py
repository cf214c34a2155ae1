"""HPCC: Li et al., "HPCC: high precision congestion control", SIGCOMM 2019 (algorithm 1).

Every port on the way reports its queue, the bytes that it has sent and the time when the packet leaves. From two reports of a port the
sender has its utilisation u = min(q, q') / (B T) + txRate / B, with B its rate and T the base round trip; U is the largest u of the path,
averaged over T. Then

    W = Wc / (U / eta) + W_AI   if U >= eta or max_stage additive steps have been taken, else   W = Wc + W_AI,

with the reference window Wc taken over once per round trip, W_init = line rate x T, W_AI = W_init (1 - eta) / n, and packets paced at W /
T.
"""

from typing import NamedTuple

from netsim.kernels.packet import cc as hooks
from netsim.kernels.structs import Array

PARAMETERS = {
    "eta": ("share", "0.95", "target utilisation"),
    "max_stage": ("number", "5", "additive steps before a multiplicative one"),
    "n": ("number", "100", "concurrent flows for which W_AI is made"),
}
ACKS, CNPS, TELEMETRY = True, False, True
STATE = 64
W, WC, U, STAGE, UPDATE, T, LINE, HOPS, MTU = range(9)
LAST = 16  # three words per hop


class Parameters(NamedTuple):
    """Plain numbers."""

    eta: float
    max_stage: float
    n: float


@hooks.implements(Parameters, hooks.start)
def start(cc: Parameters, state: Array, f: int, line: float, base_rtt: int, hops: int, mtu: int) -> None:
    """Start with what fills the idle path."""
    o = STATE * f
    state[o + T], state[o + LINE], state[o + HOPS], state[o + MTU] = base_rtt, line, hops, mtu
    state[o + W] = state[o + WC] = line * base_rtt * 1e-12
    state[o + U], state[o + STAGE], state[o + UPDATE] = 1.0, 0.0, 0.0
    for i in range(24):
        state[o + LAST + i] = 0.0


@hooks.implements(Parameters, hooks.notify)
def notify(cc: Parameters, state: Array, f: int, t: int) -> None:
    """There are none."""


@hooks.implements(Parameters, hooks.acknowledge)
def acknowledge(
    cc: Parameters, state: Array, f: int, t: int, rtt: int, packets: int, marked: bool, acked: int, sent: int, telemetry: Array, at: int
) -> None:
    """Measure the path and adapt the window."""
    o = STATE * f
    base, most, apart = state[o + T], 0.0, state[o + T]
    for h in range(1, int(state[o + HOPS])):
        p, r = o + LAST + 3 * (h - 1), at + 4 * h
        dt = telemetry[r + 2] - state[p + 2]
        if state[p + 2] > 0 and dt > 0:
            rate = telemetry[r + 3] * 1e-12
            u = min(telemetry[r], state[p]) / (rate * base) + (telemetry[r + 1] - state[p + 1]) / dt / rate
            if u > most:
                most, apart = u, dt
        state[p], state[p + 1], state[p + 2] = telemetry[r], telemetry[r + 1], telemetry[r + 2]
    if most == 0.0:
        return
    share = min(apart, base) / base
    state[o + U] = (1 - share) * state[o + U] + share * most
    whole = state[o + LINE] * base * 1e-12
    step = whole * (1 - cc.eta) / cc.n
    renew = acked > state[o + UPDATE]
    if state[o + U] >= cc.eta or state[o + STAGE] >= cc.max_stage:
        w, stage = state[o + WC] / (state[o + U] / cc.eta) + step, 0.0
    else:
        w, stage = state[o + WC] + step, state[o + STAGE] + 1
    state[o + W] = min(max(w, 64.0), whole)
    if renew:
        state[o + WC], state[o + STAGE], state[o + UPDATE] = state[o + W], stage, sent


@hooks.implements(Parameters, hooks.gap)
def gap(cc: Parameters, state: Array, f: int, t: int, nbytes: int) -> int:
    """Bytes over W / T."""
    return int(nbytes * state[STATE * f + T] / state[STATE * f + W] + 0.5)


@hooks.implements(Parameters, hooks.window)
def window(cc: Parameters, state: Array, f: int) -> float:
    """W, at least a packet."""
    return max(state[STATE * f + W], state[STATE * f + MTU])
