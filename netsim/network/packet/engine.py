"""The packet engine behind the seam of `netsim.network.api`: it lays out flows and calls, and runs the kernels."""

import numpy as np

from netsim.config.network import Network
from netsim.errors import InputError
from netsim.kernels.packet import layout as k
from netsim.kernels.packet.advance import advance
from netsim.kernels.packet.bound import next_completion
from netsim.kernels.packet.detour import change_paths, resettle
from netsim.kernels.packet.lay import begin, open_flows, open_paths
from netsim.kernels.packet.outage import go_down
from netsim.kernels.packet.tables import Tables
from netsim.kernels.routing import first_nic, first_switch
from netsim.kernels.structs import LINK_TIERS, NIC, Array, Plan, Routes, Topology
from netsim.network.api import PS_NEVER, Flows
from netsim.network.packet import buffers
from netsim.network.packet.footprint import Footprint, footprint, whole_paths
from netsim.network.packet.parameters import parameters
from netsim.network.packet.reroute import convergences, new_paths, recovery, refuse, routes_at
from netsim.network.packet.state import align, build, grown
from netsim.units import format_time
from topologies.names import link_name


class PacketEngine:
    """Every packet of every call and flow, exactly. See `netsim.network.api.Engine`."""

    def __init__(self, topology: Topology, routes: Routes, network: Network, seed: int = 0) -> None:
        """Raises `InputError` for buffers, thresholds, latencies and parameters that cannot work."""
        self.topology, self.routes, self.network = topology, routes, network
        self.cc, self._control = parameters(network.congestion_control)
        self.state = build(topology, network, buffers.thresholds(topology, network), seed if network.seed is None else network.seed)
        alive = (
            (topology.vertex_kind[topology.link_src] >= NIC) & (topology.vertex_kind[topology.link_dst] >= NIC) & (topology.link_rate > 0)
        )
        self._tables: Tables | None = None
        self._bus_rate = buffers.bus_rate(topology, network)
        self._changes: list[tuple[int, int, float]] = []  # (ps, link, bytes/s); behind all links: routing has converged
        self._rate = topology.link_rate.copy()
        self._failed_ps = 0  # when the last link failed
        self._pairs: list[Array] = []  # int64[3, n] source NIC, destination NIC, queue pair of all flows
        self._timed_links = np.flatnonzero(alive)
        self._first_nic = first_nic(topology)
        scal = self.state.scal
        self._uses_scale_up = False
        scal[k.ACKS] = k.SIMULATED if network.acks == "simulated" else (k.ANALYTIC if self._control.ACKS or scal[k.RECOVERY] else k.NO_ACKS)
        self._set_window()
        scal[k.NOTIFY], scal[k.TELEMETRY], scal[k.KEEP_HISTORY] = self._control.CNPS, self._control.TELEMETRY, self._control.ACKS
        self._choices(routes)
        self._room_for_log()
        self.n_flows = self.n_edges = self.n_calls = self.n_tokens = self.n_deps = 0
        self._footprints: list[Footprint] = []
        self._names: list[int] = []
        self._copies: list[int] = []  # calls of each handle that are laid out
        self._idle: list[list[int]] = []  # calls of each handle that are laid out and not in use
        self._plain: list[tuple[int, int]] = []  # (first flow, queue pairs) of each plain flow
        self.resent: list[tuple[int, int, int]] = []
        """(instance, end in ps, packets sent again) of every call that has ended and lost any."""

    def snapshot(self) -> dict[str, object]:
        """Return everything that has come to be; see `restore`."""
        used = self.state.arena[: self.state.scal[k.ARENA_TOP]]
        fixed = "topology", "network", "cc", "_control", "_tables"
        return {name: value for name, value in vars(self).items() if name not in fixed} | {"state": self.state._replace(arena=used)}

    def restore(self, found: dict[str, object]) -> None:
        """Become what an engine of the same fabric and network was when it gave its `snapshot`."""
        vars(self).update(found)
        used = self.state.arena
        self.state = align(self.state._replace(arena=np.empty(self.state.scal[k.ARENA_SIZE], np.int64)))
        self.state.arena[: used.size] = used

    @property
    def tables(self) -> Tables:
        """The state as kernels take it."""
        if self._tables is None or self._tables.state is not self.state:
            self._tables = Tables(self.state)
        return self._tables

    @property
    def now_ps(self) -> int:
        """Everything before this time has been played."""
        return int(self.state.scal[k.NOW])

    @property
    def windows(self) -> int:
        """Windows played so far."""
        return int(self.state.scal[k.WINDOWS])

    @property
    def has_ended(self) -> bool:
        """Whether calls have ended, after `now_ps`, of which `advance` has not told."""
        return bool(self.state.scal[k.DONE_CALLS])

    @property
    def divisible(self) -> bool:
        """Whether ranks can share a plane: not where packets collect telemetry, which lies in a table of the sender."""
        return not self.state.scal[k.TELEMETRY]

    def register(self, plan: Plan, members: Array, name: int | None = None) -> int:
        """Return a handle for calls of `plan` among `members` (int32[R] GPUs in rank order); its `name`, by default the handle, tells its
        connections from others where packets are spread at random.
        """
        self._footprints.append(footprint(self.topology, self.routes, self.network, plan, np.asarray(members, np.int64)))
        self._names.append(len(self._names) if name is None else name)
        self._copies.append(0)
        self._idle.append([])
        self._uses_scale_up |= self._footprints[-1].uses_scale_up
        self._set_window()
        return len(self._footprints) - 1

    def footprint_of(self, handle: int) -> Footprint:
        """What calls of a handle need."""
        return self._footprints[handle]

    def start(self, instance: Array, handle: Array, t_ps: Array) -> list[int]:
        """Start calls whose members have all arrived at `t_ps`, none before `now_ps`; returns their numbers in the state."""
        calls = []
        for i, h, t in zip(np.asarray(instance).tolist(), np.asarray(handle).tolist(), np.asarray(t_ps).tolist(), strict=True):
            assert t >= self.now_ps, (t, self.now_ps)
            call = self._idle[h].pop() if self._idle[h] else self._lay_out(h)
            self.state.call[(call << k.CALL) + k.INSTANCE] = i
            begin(self.tables, call, t + self._footprints[h].launch_ps)
            calls.append(call)
        return calls

    def put_back(self, call: int, handle: int, end_ps: int) -> None:
        """Let the next call of a handle use the rows of one that has ended."""
        self._idle[handle].append(call)
        if self.state.scal[k.RECOVERY]:
            self._note_resent(call, end_ps)

    def next_time(self) -> int:
        """Return a lower bound of the next completion; `PS_NEVER` when nothing is under way."""
        t = int(next_completion(self.tables))
        return PS_NEVER if t >= k.NEVER else t

    def advance(self, until_ps: int) -> tuple[Array, Array]:
        """Move to the first completion if that is at or before `until_ps`, else to `until_ps`; returns (instances, times) of all that
        complete then.
        """
        self.make_room()
        s = self.state
        until = min(int(until_ps), int(k.NEVER) - 1)
        while self._changes and self._changes[0][0] <= until:
            t, link, rate = self._changes[0]
            if t > self.now_ps and (advance(self.tables, self.cc, t) < t or (s.scal[k.DONE_CALLS] and not s.scal[k.IN_PARTS])):
                break
            self._changes.pop(0)
            if link < self._rate.size:
                self._apply(link, rate)
            else:
                self._reroute()
        else:
            advance(self.tables, self.cc, until)
        now = self.now_ps
        self.complain()
        done = s.done[: s.scal[k.DONE_CALLS]].copy()
        when = s.call[(done << k.CALL) + k.LAST_PS]
        ended, rest = done[when <= now], done[when > now]
        s.done[: rest.size] = rest
        s.scal[k.DONE_CALLS] = rest.size
        rows = ended << k.CALL
        if s.scal[k.IN_PARTS] == 0:
            for call, h, t in zip(ended.tolist(), s.call[rows + k.HANDLE].tolist(), s.call[rows + k.LAST_PS].tolist(), strict=True):
                self.put_back(call, h, t)
        order = np.lexsort((s.call[rows + k.INSTANCE], s.call[rows + k.LAST_PS]))
        return s.call[rows + k.INSTANCE][order], s.call[rows + k.LAST_PS][order]

    @property
    def next_change(self) -> int:
        """When the next link changes its rate, `PS_NEVER` if none does."""
        return self._changes[0][0] if self._changes else PS_NEVER

    def change_rates(self, t_ps: Array, link: Array, rate: Array) -> None:
        """Let links change to `rate` bytes/s at times to come, in order, before anything is added.

        0: the link fails, and what is on it or queued for it is lost. Switches that choose avoid it; `network.convergence` later,
        routing does everywhere. So packets may overtake each other, and are sent again, whatever the flow control.
        """
        changes = sorted(zip(t_ps.tolist(), link.tolist(), rate.tolist(), strict=True))
        times = convergences(self._rate, changes, self.network.convergence)
        self._changes = sorted([*self._changes, *changes, *((t, self._rate.size, 0.0) for t in times)])
        if times:
            s = self.state
            s.scal[k.ORDERED] = 0
            if not s.scal[k.RECOVERY]:
                s.scal[k.RECOVERY], s.scal[k.TIMEOUT] = recovery(self.network), self.network.recovery.timeout
                s.scal[k.ACKS] = max(int(s.scal[k.ACKS]), k.ANALYTIC)
            self.state = s._replace(seen=grown(s.seen, self.n_flows << k.SEEN))

    def _reroute(self) -> None:
        """Routing has converged: tables are those of the links that work now, flows take the paths that these give."""
        self.routes = routes_at(self.topology, self.routes, self._rate)
        self._choices(self.routes)
        self.state.scal[k.REROUTED] = 1
        self._change_paths(0)
        resettle(self.tables, self.now_ps)

    def _change_paths(self, first: int) -> None:
        """Give flows from `first` on the paths of the present routes; raises `InputError` for those that will never have one again."""
        src, dst, qp = np.concatenate(self._pairs, axis=1)[:, first:] if self._pairs else np.zeros((3, 0), np.int64)
        flow = first + np.flatnonzero(src >= 0)
        src, dst, qp = (column[src >= 0] for column in (src, dst, qp))
        rx = self.state.rx.reshape(-1, 1 << k.RX)
        rx[flow, k.RX_GROUP] = self.routes.nic_group[dst]
        reached, ahead, back = new_paths(self.topology, self.routes, src, dst, qp)
        known = self._first_nic + (src if self.state.scal[k.ACKS] == k.SIMULATED else dst)  # where the end of a flow is noted
        lost = ~reached & (src != dst) & (rx[flow, k.END] < 0) & (self.state.mine[known] != 0)
        if lost.any() and not any(rate > 0 for _, _, rate in self._changes):
            refuse(self.topology, self.routes, src[lost], dst[lost], self._failed_ps)
        change_paths(self.tables, flow[reached], *ahead, *back)

    def _apply(self, link: int, rate: float) -> None:
        s, q, v = self.state, link << k.PORT, int(self.state.link_src[link])
        self._rate[link] = rate
        self._failed_ps = self._failed_ps if rate > 0 else self.now_ps
        if rate > 0:
            s.ps_per_byte[link] = per_byte = 1e12 / min(rate, float(self._bus_rate[link]))
            s.port[q + k.SER] = int(s.scal[k.MTU] * per_byte + 0.5)
            s.port[q + k.SER_CONTROL] = int(s.scal[k.CONTROL_SIZE] * 1e12 / rate + 0.5)
        busy = s.port[q + k.FREE]
        s.port[q + k.FREE] = (self.now_ps if busy == k.NEVER else busy) if rate > 0 else k.NEVER
        if rate == 0 and v >= self._first_nic:
            s.scal[k.FAILED] = 1
            go_down(self.tables, link, self.now_ps)
        if not s.mine[v]:
            return
        for table, place in ((s.port_next, link), (s.send_next, v), (s.send_block, v >> k.BLOCK_SHIFT)):
            table[place] = min(table[place], self.now_ps)

    def counters(self) -> dict[str, Array]:
        """Return what each link has seen up to `now_ps`, int64[L]; bytes and packets are those of the data class.

        `gone`: of the `drops`, those of packets that had left the port, and so are among `packets`.
        `queued` is the integral of the data queue over time (bytes x ps) modulo 2^64: differences of two moments are exact.
        """
        table = self.state.count.reshape(-1, 1 << k.COUNT)
        names = {
            "bytes": k.BYTES, "packets": k.PACKETS, "queue_max": k.QUEUE_MAX, "ecn": k.MARKS, "pause_ps": k.PAUSE_PS, "drops": k.DROPS,
            "reordered": k.REORDERED, "control_bytes": k.CONTROL_BYTES, "gone": k.GONE,
        }  # fmt: skip
        queue = self.state.port.reshape(-1, 1 << k.PORT)[:, k.QUEUE]
        found = {name: table[:, column].copy() for name, column in names.items()}
        return found | {"queued": queue * np.int64(self.now_ps) + table[:, k.QUEUED]}

    def _note_resent(self, call: int, end_ps: int) -> None:
        """Keep how many packets a call that has ended sent again here, if it did."""
        tx, row = self.state.tx.reshape(-1, 1 << k.TX)[:, k.RESENT], call << k.CALL
        first, n = (int(self.state.call[row + column]) for column in (k.CALL_EDGE_0, k.CALL_EDGES))
        edges = self.state.edge.reshape(-1, 1 << k.EDGE)[first : first + n]
        resent = sum(int(tx[f : f + parts].sum()) for f, parts in edges[:, [k.FLOW_0, k.FLOWS]].tolist())
        if resent:
            self.resent.append((int(self.state.call[row + k.INSTANCE]), end_ps, resent))

    def forget_queue_max(self) -> None:
        """Start the high-water marks of queues afresh, from what is queued now."""
        s = self.state
        s.count[k.QUEUE_MAX :: 1 << k.COUNT] = s.port[k.QUEUE :: 1 << k.PORT]

    # --- plain traffic -------------------------------------------------------------------------------------------------------------------

    def add_flows(self, flows: Flows) -> None:
        """Add plain flows, each on `network.qps` queue pairs between which its bytes are split."""
        self._refuse_hopeless(flows)
        n, q = flows.src.size, self.network.qps
        src, dst, qp = np.repeat(flows.src, q), np.repeat(flows.dst, q), np.tile(np.arange(q), n)
        share = np.repeat(flows.nbytes // q, q) + (qp < np.repeat(flows.nbytes % q, q))
        one = np.ones(n * q, np.int64)
        first = self._open(src.astype(np.int64), dst.astype(np.int64), qp, share, share, one, -one, -one, 0 * one)
        self.state.tx[((first + np.arange(n * q)) << k.TX) + k.NAME] = first + np.arange(n * q)
        self._plain += [(first + i * q, q) for i in range(n)]
        s = self.state
        s.scal[k.FLOWS_LEFT] += n * q
        open_flows(self.tables, first, np.repeat(flows.start_ps, q))

    def _refuse_hopeless(self, flows: Flows) -> None:
        """Raise `InputError` for flows that start when links have failed for good that they cannot do without."""
        rate, last = self._rate.copy(), -1
        for t, link, new in self._changes:
            if link < rate.size:
                rate[link], last = new, t
        late = flows.start_ps >= last
        if last >= 0 and late.any():
            refuse(self.topology, routes_at(self.topology, self.routes, rate), flows.src[late], flows.dst[late], last)

    def finish(self) -> None:
        """Run until every plain flow has ended."""
        self.advance(int(k.NEVER) - 1)
        if self.state.scal[k.FLOWS_LEFT]:
            raise InputError(f"network: {int(self.state.scal[k.FLOWS_LEFT])} flows can never end; a lossless network may be in deadlock")

    def flow_ends(self) -> Array:
        """int64[F]: when the last acknowledgement of each plain flow was back at its sender; -1 before that."""
        ends = self.state.rx.reshape(-1, 1 << k.RX)[:, k.END]
        return np.array([ends[f : f + q].max() if (ends[f : f + q] >= 0).all() else -1 for f, q in self._plain], np.int64)

    def flow_resent(self) -> Array:
        """int64[F]: packets that each plain flow has sent again."""
        resent = self.state.tx.reshape(-1, 1 << k.TX)[:, k.RESENT]
        return np.array([resent[f : f + q].sum() for f, q in self._plain], np.int64)

    # --- lay-out -------------------------------------------------------------------------------------------------------------------------

    def _lay_out(self, handle: int) -> int:
        """Make rows for one more call of a handle at a time; returns its number."""
        fp = self._footprints[handle]
        e0, f0, c = self.n_edges, self.n_flows, self.n_calls
        n = fp.edges.shape[0]
        if fp.dep_first < 0:
            fp.dep_first = self._append_deps(fp)
        self._open_call_flows(fp, e0)
        flow = np.arange(self.n_flows - f0)
        self.state.tx[((f0 + flow) << k.TX) + k.NAME] = (self._names[handle] << 40) + (self._copies[handle] << 24) + flow
        self._copies[handle] += 1
        rows = fp.edges.copy()
        rows[:, k.BLOCK] = c
        rows[:, k.EDGE_0] = e0
        rows[:, k.FLOW_0] += f0
        rows[:, [k.DEP_0, k.DEP_1, k.RDEP_0, k.RDEP_1]] += fp.dep_first
        rows[:, k.TOKEN_0] += self.n_tokens
        self.n_edges, self.n_calls, self.n_tokens = e0 + n, c + 1, self.n_tokens + fp.n_tokens
        s = self.state
        self.state = s = s._replace(
            edge=grown(s.edge, self.n_edges << k.EDGE),
            token=grown(s.token, self.n_tokens),
            call=grown(s.call, self.n_calls << k.CALL),
            done=grown(s.done, self.n_calls),
            live=grown(s.live, self.n_calls),
        )
        s.edge[e0 << k.EDGE : self.n_edges << k.EDGE] = rows.ravel()
        row = s.call[c << k.CALL : (c + 1) << k.CALL]
        row[k.CALL_EDGE_0], row[k.CALL_EDGES], row[k.HANDLE], row[k.INSIDE] = e0, n, handle, fp.uses_scale_up
        return c

    def _append_deps(self, fp: Footprint) -> int:
        """Put the dependencies of a footprint behind those of others."""
        first = self.n_deps
        self.n_deps += fp.dep_edge.size
        s, size = self.state, self.n_deps
        columns = ("dep_edge", "dep_lag", "dep_token", "rdep_edge", "rdep_lag", "rdep_token")
        self.state = s = s._replace(**{name: grown(getattr(s, name), size) for name in columns})
        for name in columns:
            getattr(s, name)[first:size] = getattr(fp, name)
        return first

    def _open_call_flows(self, fp: Footprint, e0: int) -> None:
        self._open(fp.src_nic, fp.dst_nic, fp.qp, fp.nbytes, fp.message, fp.messages, e0 + fp.flow_edge, fp.dst_gpu, fp.to_gpu, fp)

    def _open(
        self, src: Array, dst: Array, qp: Array, nbytes: Array, message: Array, messages: Array, edge: Array, gpu: Array, to_gpu: Array,
        fp: Footprint | None = None,
    ) -> int:  # fmt: skip
        """Make rows for flows; returns the first. With a footprint, flows from NIC -1 are scale-up connections along `fp.links`."""
        first, n = self.n_flows, src.size
        self.n_flows = first + n
        if self.n_flows > k.FLOW_MASK:
            raise InputError(f"network: expected at most {k.FLOW_MASK} queue pairs at a time; got {self.n_flows}")
        s, size = self.state, self.n_flows
        self.state = s = s._replace(
            path=grown(s.path, size << k.PATH_SHIFT, -1),
            size=grown(s.size, size << 2),
            tx=grown(s.tx, size << k.TX),
            rx=grown(s.rx, size << k.RX),
            cc=grown(s.cc, size * self._control.STATE),
            seen=grown(s.seen, (size << k.SEEN) * (1 - int(s.scal[k.ORDERED]))),
            sent_ps=grown(s.sent_ps, (size << k.HISTORY) * self._control.ACKS),
            telemetry=grown(s.telemetry, (size << k.HISTORY << 5) * self._control.TELEMETRY),
        )
        ahead, back = fp.paths if fp is not None else whole_paths(self.topology, self.routes, src, dst, qp)
        open_paths(
            self.tables,
            self.cc,
            first,
            *ahead,
            *back,
            nbytes,
            message,
            messages,
            edge,
            gpu,
            to_gpu,
            np.where(dst < 0, -1, self.routes.nic_group[dst]).astype(np.int64),
            src < 0,
        )
        self._pairs.append(np.stack([src, dst, qp]))
        if s.scal[k.REROUTED] and fp is not None:
            self._change_paths(first)
        return first

    def _set_window(self) -> None:
        """Choose the window; the latency inside nodes counts once a call uses it."""
        scal, top = self.state.scal, self.topology
        scal[k.WINDOW_PS], scal[k.LEAST_LATENCY] = buffers.window(top, self.network, self._timed_links)
        out, into = top.link_latency[: top.n_gpus], top.link_latency[top.n_gpus : 2 * top.n_gpus]
        inside = (out + into).min(initial=buffers.UNLIMITED)
        if top.islands > 1:  # messages come to the link between islands first
            inside = min(out.min(), into.min() + top.link_latency[top.link_tier == LINK_TIERS.index("between")].min())
        if self._uses_scale_up and inside <= 0:
            raise InputError("topology.scale_up.latency: expected a latency above 0, because windows are as long as the shortest; got 0 ps")
        scal[k.INSIDE_WINDOW] = min(scal[k.WINDOW_PS], inside) if self._uses_scale_up else scal[k.WINDOW_PS]

    def _choices(self, routes: Routes) -> None:
        """Give switches the routes, which they need to choose packet by packet, and after routes have changed."""
        s = self.state
        s.scal[k.N_GROUPS] = routes.n_groups
        self.state = s._replace(**{name: np.ascontiguousarray(getattr(routes, name)) for name in ("hop_set", "set_ptr", "set_idx")})
        if s.scal[k.SPREAD] == k.FLOWLET and s.flowlet.size == 1:
            flowlet = np.zeros(max(2, self.topology.n_switches << k.FLOWLETS << 1), np.int64)
            flowlet[::2], flowlet[1::2] = -k.NEVER, -1
            self.state = self.state._replace(flowlet=flowlet)

    def _room_for_log(self) -> None:
        """Room for all arrivals and departures of a switch in one window, were all packets as small as can be."""
        s, top = self.state, self.topology
        smallest = np.maximum(1.0, s.ps_per_byte * (self.network.header + 1))
        most = np.bincount(top.link_src, 2 + s.scal[k.WINDOW_PS] / smallest) + np.bincount(top.link_dst, 2 + s.scal[k.WINDOW_PS] / smallest)
        g = int(most[first_switch(top) :].max(initial=1))
        s.scal[k.LOG_SIZE] = g
        self.state = s._replace(log=np.zeros(4 * g, np.int64), scratch=np.zeros(g, np.int64), arrivals=np.zeros(2 * g + 2, np.int64))

    def make_room(self) -> None:
        """Move all rings to a fresh arena when more than half of it has been given out."""
        s = self.state
        if s.scal[k.ARENA_TOP] < s.arena.size // 2:
            return
        table = s.ring.reshape(-1, 1 << k.RING)
        needed = int(2 * (table[:, k.MASK] + 1).sum())
        arena, top = np.empty(max(s.arena.size, 4 * needed), np.int64), 0
        for row in table[table[:, k.MASK] >= 0]:
            size = 2 * (row[k.MASK] + 1)
            arena[top : top + size] = s.arena[row[k.BASE] : row[k.BASE] + size]
            row[k.BASE] = top
            top += size
        table[table[:, k.MASK] >= 0, k.BASE] = np.cumsum(np.r_[0, 2 * (table[table[:, k.MASK] >= 0, k.MASK] + 1)])[:-1]
        s.scal[k.ARENA_TOP] = top
        s.scal[k.ARENA_SIZE] = arena.size
        self.state = s._replace(arena=arena)

    def complain(self) -> None:
        """Raise `InputError` for what the kernels found wrong."""
        error, link, t = (int(self.state.scal[i]) for i in (k.ERROR, k.ERROR_LINK, k.ERROR_T))
        if error == k.HEADROOM:
            limit, xoff = (int(self.state.pfc[(link << k.PFC) + c]) for c in (k.LIMIT, k.XOFF))
            raise InputError(
                f"network.pfc.headroom: expected enough for what is on the way when a sender is paused; got {limit - xoff} B, which "
                f"{link_name(self.topology, link)} exceeded at {format_time(t)}"
            )
        if error == k.TOO_LATE:
            raise InputError(
                f"network.spreading: expected paths of about equal length; got packets that overtook {1 << (2 * k.SEEN)} others by "
                f"{format_time(t)} at {link_name(self.topology, link)}"
            )
        if error == k.TOO_MANY_PAUSES:
            raise InputError(
                f"network.pfc.xon: expected a distance from xoff that keeps pauses apart; got more than {1 << k.TOGGLES} under way on "
                f"{link_name(self.topology, link)} at {format_time(t)}"
            )
