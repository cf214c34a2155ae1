"""Swift: Kumar et al., "Swift: delay is simple and effective for congestion control in the datacenter", SIGCOMM 2020.

The sender holds the round trip of each packet against a target

    target = base_target + hops * hop_scale + clamp(alpha / sqrt(cwnd) + beta', 0, fs_range)
    alpha  = fs_range / (1 / sqrt(fs_min_cwnd) - 1 / sqrt(fs_max_cwnd)),   beta' = -alpha / sqrt(fs_max_cwnd)

and adapts its window of cwnd packets: below the target cwnd += ai / cwnd per acknowledged packet (ai per packet while cwnd < 1); above
it, at most once per round trip, cwnd *= max(1 - beta (delay - target) / delay, 1 - max_mdf). A window below one packet is a gap of rtt /
cwnd between packets. Hosts add no delay here, so the fabric's window is the only one. `hops` are links.
"""

from math import sqrt
from typing import NamedTuple

from netsim.kernels.packet import cc as hooks
from netsim.kernels.structs import Array

PARAMETERS = {
    "base_target": ("time", "5 us", "target delay of a path without hops"),
    "hop_scale": ("time", "2 us", "added for each link"),
    "fs_range": ("time", "4 us", "most that flow scaling adds"),
    "fs_min_cwnd": ("number", "0.1", "window at which flow scaling adds most"),
    "fs_max_cwnd": ("number", "100", "window from which flow scaling adds nothing"),
    "ai": ("number", "1", "additive increase, packets per round trip"),
    "beta": ("number", "0.8", "strength of the decrease"),
    "max_mdf": ("share", "0.5", "largest decrease at once"),
    "min_cwnd": ("number", "0.001", "least window, packets"),
    "max_cwnd": ("number", "250", "largest window, packets"),
}
ACKS, CNPS, TELEMETRY = True, False, False
STATE = 8
CWND, TARGET, DECREASED, MTU, RTT = range(5)


class Parameters(NamedTuple):
    """Times in ps, windows in packets."""

    base_target: float
    hop_scale: float
    fs_range: float
    fs_min_cwnd: float
    fs_max_cwnd: float
    ai: float
    beta: float
    max_mdf: float
    min_cwnd: float
    max_cwnd: float


@hooks.implements(Parameters, hooks.start)
def start(cc: Parameters, state: Array, f: int, line: float, base_rtt: int, hops: int, mtu: int) -> None:
    """Start with what fills the idle path."""
    o = STATE * f
    state[o + CWND] = min(cc.max_cwnd, line * base_rtt * 1e-12 / mtu)
    state[o + TARGET] = cc.base_target + hops * cc.hop_scale
    state[o + DECREASED], state[o + MTU], state[o + RTT] = -1e18, mtu, base_rtt


@hooks.implements(Parameters, hooks.notify)
def notify(cc: Parameters, state: Array, f: int, t: int) -> None:
    """There are none."""


@hooks.implements(Parameters, hooks.acknowledge)
def acknowledge(
    cc: Parameters, state: Array, f: int, t: int, rtt: int, packets: int, marked: bool, acked: int, sent: int, telemetry: Array, at: int
) -> None:
    """Adapt the window to the delay."""
    o = STATE * f
    cwnd = state[o + CWND]
    alpha = cc.fs_range / (1 / sqrt(cc.fs_min_cwnd) - 1 / sqrt(cc.fs_max_cwnd))
    target = state[o + TARGET] + min(max(alpha / sqrt(cwnd) - alpha / sqrt(cc.fs_max_cwnd), 0.0), cc.fs_range)
    if rtt < target:
        cwnd += cc.ai * packets / max(cwnd, 1.0)
    elif t - state[o + DECREASED] >= state[o + RTT]:
        cwnd *= max(1 - cc.beta * (rtt - target) / rtt, 1 - cc.max_mdf)
        state[o + DECREASED] = t
    state[o + CWND], state[o + RTT] = min(max(cwnd, cc.min_cwnd), cc.max_cwnd), rtt


@hooks.implements(Parameters, hooks.gap)
def gap(cc: Parameters, state: Array, f: int, t: int, nbytes: int) -> int:
    """Only windows below one packet are paced."""
    o = STATE * f
    return 0 if state[o + CWND] >= 1 else int(state[o + RTT] / state[o + CWND])


@hooks.implements(Parameters, hooks.window)
def window(cc: Parameters, state: Array, f: int) -> float:
    """The window in bytes, at least a packet."""
    return max(state[STATE * f + CWND], 1.0) * state[STATE * f + MTU]
