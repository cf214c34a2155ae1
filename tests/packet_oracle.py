"""A packet network played event by event from one heap: the slow, plain twin of the packet engine, for small cases.

Order at one moment: pauses and resumes, events of NICs and arrivals of control packets, ports of switches that become free, arrivals of
data packets by input, starts of NICs.
"""

import heapq
from collections import deque
from typing import Any

from netsim.config.network import Network
from netsim.kernels.packet import layout as k
from netsim.kernels.packet.ring import random
from netsim.kernels.structs import NIC, SWITCH, Topology
from netsim.network.api import Flows

TOGGLE, EVENT, FREE, ARRIVAL, NIC_START = range(5)


class Port:
    """One end of a link: two queues, a wire that is busy until `free`, and for the other end the bytes that it holds of what came from
    here.
    """

    def __init__(self) -> None:
        self.data: deque[Any] = deque()
        self.control: deque[Any] = deque()
        self.line: deque[int] = deque()  # NICs: flows that may send
        self.free, self.paused, self.queue, self.ramp, self.held, self.over, self.off = 0, False, 0, 0, 0, 0, False
        self.count = dict.fromkeys(("bytes", "packets", "queue_max", "ecn", "pause_ps", "control_bytes"), 0)
        self.pause_t = 0
        self.credit = 1 << 60


class Oracle:
    """Runs flows without congestion control; `ends` as the engine's `flow_ends`."""

    def __init__(self, top: Topology, network: Network, thresholds: Any, ways: Any, backs: Any, flows: Flows, seed: int) -> None:
        self.top, self.net, self.limits, self.seed = top, network, thresholds, seed
        self.ways, self.backs = ways, backs
        self.ports = [Port() for _ in top.link_src]
        self.left = [-(-int(b) // network.payload) for b in flows.nbytes]
        self.total, self.got, self.unacked = list(self.left), [0] * len(self.left), [0] * len(self.left)
        self.nbytes = [int(b) for b in flows.nbytes]
        self.ends = [-1] * len(self.left)
        self.heap: list[Any] = []
        for port, limit in zip(self.ports, thresholds, strict=True):
            port.credit = int(limit[5])
        self.serial = 0
        for f, t in enumerate(flows.start_ps):
            self.push(int(t), EVENT, f, ("open", f))

    def push(self, t: int, kind: int, order: int, what: Any) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (t, kind, order, self.serial, what))

    def run(self, until: int = 1 << 60) -> None:
        while self.heap and self.heap[0][0] <= until:
            t, _, _, _, what = heapq.heappop(self.heap)
            getattr(self, what[0])(t, *what[1:])

    def wire_ps(self, link: int, size: int) -> int:
        return int(size * (1e12 / self.top.link_rate[link]) + 0.5)

    def size(self, f: int, seq: int) -> int:
        rest = self.nbytes[f] - seq * self.net.payload
        return self.net.header + min(self.net.payload, rest)

    def open(self, t: int, f: int) -> None:
        self.ports[self.ways[f][0]].line.append(f)
        self.later(t, self.ways[f][0])

    def later(self, t: int, link: int) -> None:
        """Have a port look for something to send at `t`."""
        nic = self.top.vertex_kind[self.top.link_src[link]] == NIC
        self.push(t, NIC_START if nic else FREE, 0, ("go", link))

    def toggle(self, t: int, link: int) -> None:
        port = self.ports[link]
        port.paused = not port.paused
        if port.paused:
            port.pause_t = t
        else:
            port.count["pause_ps"] += t - port.pause_t
            self.later(t, link)

    def go(self, t: int, link: int) -> None:
        """Start the next packet of a port if it is idle."""
        port = self.ports[link]
        if port.free > t:
            return
        if port.control:
            packet = port.control.popleft()
            port.free = t + self.wire_ps(link, self.net.control)
            port.count["control_bytes"] += self.net.control
            self.push(port.free + int(self.top.link_latency[link]), EVENT, 0, ("control", link, packet))
        elif not port.paused and (port.data or port.line) and port.credit >= self.next_size(port):
            f, seq, hop, marked, _, source = port.data.popleft() if port.data else self.inject(port)
            size = self.size(f, seq)
            if source >= 0:
                port.queue -= size
                self.count_input(t, source, -size)
            port.credit -= size
            port.free = t + self.wire_ps(link, size)
            port.count["bytes"] += size
            port.count["packets"] += 1
            at = port.free + int(self.top.link_latency[link])
            self.push(at, ARRIVAL, link, ("arrive", link, (f, seq, hop, marked)))
        else:
            return
        self.later(port.free, link)

    def next_size(self, port: Port) -> int:
        """Credit that a start needs: of a switch for the packet, of a NIC for a full one."""
        return self.size(*port.data[0][:2]) if port.data else self.net.payload + self.net.header

    def credited(self, t: int, link: int, size: int) -> None:
        self.ports[link].credit += size
        self.later(t, link)

    def inject(self, port: Port) -> Any:
        f = port.line.popleft()
        seq = self.total[f] - self.left[f]
        self.left[f] -= 1
        if self.left[f]:
            port.line.append(f)
        return f, seq, 1, False, 0, -1

    def arrive(self, t: int, link: int, packet: Any) -> None:
        f, seq, hop, marked = packet
        if self.top.vertex_kind[self.top.link_dst[link]] == NIC:
            self.receive(t, f, marked)
            return
        out = self.ways[f][hop]
        port, size = self.ports[out], self.size(f, seq)
        marked = self.mark(out, port) or marked
        port.queue += size
        port.count["queue_max"] = max(port.count["queue_max"], port.queue)
        self.count_input(t, link, size)
        port.data.append((f, seq, hop + 1, marked, t, link))
        self.go(t, out)

    def mark(self, link: int, port: Port) -> bool:
        ecn = self.net.ecn
        if ecn is None or port.queue <= ecn.kmin:
            return False
        hit = port.queue >= ecn.kmax
        if not hit:
            port.ramp += 1
            draw = random(self.seed, link, port.ramp) >> 13
            hit = draw * (ecn.kmax - ecn.kmin) < round(ecn.pmax * (1 << 40)) * (port.queue - ecn.kmin)
        port.count["ecn"] += hit
        return hit

    def count_input(self, t: int, link: int, size: int) -> None:
        """Bytes of input `link` come or go; its sender is paused or let go."""
        if size < 0 and self.net.flow_control == "credits":
            self.push(t + int(self.limits[link][3]), TOGGLE, 0, ("credited", link, -size))
        if self.net.flow_control != "pfc" or self.top.vertex_kind[self.top.link_dst[link]] != SWITCH:
            return
        port, (xoff, xon, headroom, delay) = self.ports[link], self.limits[link][:4]
        if self.net.sharing == "dynamic":
            self.count_pooled(t, link, size, int(xon), int(headroom), int(delay))
            return
        port.held += size
        if (not port.off and port.held > xoff) or (port.off and port.held <= xon):
            port.off = not port.off
            self.push(t + int(delay), TOGGLE, 0, ("toggle", link))

    def count_pooled(self, t: int, link: int, size: int, offset: int, headroom: int, delay: int) -> None:
        """As `count_input` with a pool: an input's bytes are in its share of the pool or in its headroom."""
        switch = int(self.top.link_dst[link])
        inputs = [i for i in range(len(self.ports)) if self.top.link_dst[i] == switch]
        pool = int(self.top.vertex_buffer[switch]) - sum(int(self.limits[i][2]) for i in inputs)
        port, free = self.ports[link], pool - sum(self.ports[i].held for i in inputs)
        if size > 0:
            if port.over > 0 or size > free or port.held + size > self.net.alpha * free:
                port.over += size
                assert port.over <= headroom
                change = not port.off
            else:
                port.held += size
                change = False
        else:
            over = min(port.over, -size)
            port.over, port.held, free = port.over - over, port.held + size + over, free - size - over
            change = port.off and port.over == 0 and (port.held == 0 or port.held + offset <= self.net.alpha * free)
        if change:
            port.off = not port.off
            self.push(t + delay, TOGGLE, 0, ("toggle", link))

    def receive(self, t: int, f: int, marked: bool) -> None:
        self.got[f] += 1
        done = self.got[f] == self.total[f]
        if self.net.acks == "analytic":
            if done:
                back = self.backs[f]
                self.ends[f] = t + sum(int(self.top.link_latency[x]) + self.wire_ps(x, self.net.control) for x in back)
            return
        self.unacked[f] += 1
        if self.unacked[f] == self.net.ack_every or done:
            self.unacked[f] = 0
            self.ports[self.backs[f][0]].control.append((f, self.got[f], 1))
            self.later(t, self.backs[f][0])

    def control(self, t: int, link: int, packet: Any) -> None:
        f, got, hop = packet
        if self.top.vertex_kind[self.top.link_dst[link]] == NIC:
            if got == self.total[f]:
                self.ends[f] = t
            return
        out = self.backs[f][hop]
        self.ports[out].control.append((f, got, hop + 1))
        self.go(t, out)


__all__ = ["Oracle", "k"]
