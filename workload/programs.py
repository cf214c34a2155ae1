"""From a schedule's steps to the program of a pipeline stage."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from netsim.kernels.structs import TIMERS
from workload.chunkwise import Blocks
from workload.found import found
from workload.fsdp import Fsdp
from workload.gradients import Buffers, Sync, buffers_of
from workload.schedule import Pipe, Step
from workload.shape import Shape
from workload.stages import Chunk, chunks
from workload.step import begin, finish, stage_params
from workload.tape import Ref, Tables
from workload.timeline import Placed, Program, Timeline

COMPUTE_STEPS = ("forward", "backward", "inputs", "weights")
ALIASES = {"1f1b": "one_f_one_b"}


def batch_timer(posted: list[str]) -> str:
    """Return Megatron's timer of the call that posts these messages together and waits for them."""
    kinds = sorted(set(posted), key=lambda kind: (kind.endswith("recv"), kind))
    name = "-".join(kinds)
    return name if name in TIMERS else "forward-backward-send-forward-backward-recv"


class Stage(NamedTuple):
    """What one pipeline stage holds and does."""

    held: list[Chunk]
    steps: list[Step]
    buffers: list[Buffers]


def schedule_of(s: Shape) -> ModuleType:
    """The module of the schedule."""
    name = s.training.pipeline.schedule
    name = ("interleaved" if s.lay.vpp > 1 else "1f1b") if name == "auto" else name
    return found("schedules", ALIASES.get(name, name))


def pipe_of(s: Shape) -> Pipe:
    """What the schedule needs to know."""
    pipe, lay = s.training.pipeline, s.lay
    overlap = lay.vpp > 1 if pipe.overlap_p2p is None else pipe.overlap_p2p
    v = getattr(schedule_of(s), "CHUNKS", lay.vpp)
    return Pipe(lay.pp, v, lay.microbatches, pipe.group_size or lay.pp, overlap, pipe.warmup_flush, int(s.training.experts.overlap))


def _place(s: Shape) -> Callable[[int, int, Pipe], int]:
    return getattr(schedule_of(s), "virtual_stage", lambda stage, chunk, pipe: chunk * pipe.stages + stage)


def _turned(s: Shape) -> set[int]:
    """Chunks that travel from the last stage to the first."""
    reversed_chunks: Callable[[Pipe], set[int]] = getattr(schedule_of(s), "reversed_chunks", lambda pipe: set())
    return reversed_chunks(pipe_of(s))


def depth_of(s: Shape) -> int:
    """Virtual stages that the layers are dealt out over."""
    place, pipe = _place(s), pipe_of(s)
    return 1 + max(place(r, q, pipe) for r in range(pipe.stages) for q in range(pipe.chunks))


def stages(s: Shape) -> list[Stage]:
    """Return chunks, order and buffers of every stage."""
    module, pipe = schedule_of(s), pipe_of(s)
    place, dealt = _place(s), chunks(s.training, depth_of(s))
    out = []
    for r in range(pipe.stages):
        held = [dealt[place(r, q, pipe)] for q in range(pipe.chunks)]
        out.append(Stage(held, module.steps(r, pipe), buffers_of(s, r, held, bool(_turned(s)))))
    return out


class Play:
    """Plays the steps of one stage onto a timeline."""

    def __init__(self, s: Shape, blocks: Blocks, number: int, stage: Stage, pipe: Pipe, turned: set[int]) -> None:
        self.s, self.blocks, self.number, self.stage, self.pipe, self.turned = s, blocks, number, stage, pipe, turned
        self.line = Timeline(blocks.tables, s.group_sizes(), s.launch == "in order")
        self.sync = Sync(s, self.line, stage.buffers, bool(turned))
        self.fsdp = Fsdp(s, self.line, self.sync)
        self._arrived: dict[tuple[str, int, int], Ref | None] = {}
        self._sent: dict[str, Ref | None] = {}
        self._posted: list[tuple[str, Ref | None]] = []
        self._before = 0
        """Messages among those posted that were posted before the last compute step."""
        self._last: dict[int, list[Placed]] = {}
        self._begun: set[int] = set()
        self._launched: set[int] = set()
        self._final = {step.chunk: step.microbatch for step in stage.steps if step.kind in ("backward", "inputs")}
        """The microbatch whose gradient of a chunk comes last."""

    def run(self) -> Program:
        """Return the program of the stage."""
        params = stage_params(self.s, self.stage.held)
        self._gather_first()
        begin(self.s, self.line, params)
        order = {kind: [step for step in self.stage.steps if step.kind == kind] for kind in ("forward", "backward")}
        counts = {"forward": 0, "backward": 0}
        steps = list(self.stage.steps)
        while steps:
            step = steps.pop(0)
            if step.kind not in COMPUTE_STEPS:
                self._message(step)
                continue
            if step.kind == "forward":
                self._gather_ahead(order["forward"], counts["forward"])
            other = self._partner(step, steps)
            if other:
                steps.remove(other)
                self._compute_woven(step, other)
            else:
                self._compute(step)
            for done in (step, other):
                if done and done.kind == "backward":
                    self._reduce_aligned(order["backward"], counts["backward"])
                if done and done.kind in counts:
                    counts[done.kind] += 1
        self._reduce_left()
        finish(self.s, self.line, self.sync, params, self.stage.held)
        return self.line.finish()

    def _partner(self, step: Step, after: list[Step]) -> Step | None:
        """The backward step that a forward step is woven into: the next compute step, with expert exchanges overlapped."""
        if step.kind != "forward" or not self.s.training.experts.overlap:
            return None
        following = next((s for s in after if s.kind in COMPUTE_STEPS), None)
        return following if following and following.kind == "backward" else None

    def _compute_woven(self, forward: Step, backward: Step) -> None:
        """Play a forward and a backward step as one block."""
        held = self.stage.held
        for step in (forward, backward):
            self._receive(step.kind, step)
        block = self.blocks.woven(held[forward.chunk], held[backward.chunk])
        placed = self.line.play(
            block, forward.microbatch, held[forward.chunk].first, (backward.microbatch, held[backward.chunk].first)
        )
        if backward.microbatch == self._final[backward.chunk]:
            self._last.setdefault(backward.chunk, []).append(placed)

    def _compute(self, step: Step) -> None:
        chunk = self.stage.held[step.chunk]
        block = getattr(self.blocks, step.kind)(chunk)
        self._receive("forward" if step.kind == "forward" else "backward", step)
        before = self.line.end
        placed = self.line.play(block, step.microbatch, chunk.first)
        if step.kind == "forward" and step.chunk not in self._begun and self._gathers_ahead():
            self.sync.gather_hooked(step.chunk, placed)
        self._begun.add(step.chunk)
        if step.kind != "forward" and step.microbatch == self._final[step.chunk]:
            self._last.setdefault(step.chunk, []).append(placed)
        self._shard(step, placed, before)

    def _scattered(self) -> bool:
        return self.s.training.pipeline.scatter_gather and not self.s.sp

    def _receive(self, message: str, step: Step) -> None:
        """Wait for the message that a step consumes, and put its parts together."""
        self._before = len(self._posted)
        arrived = self._arrived.pop((message, step.chunk, step.microbatch), None)
        self.line.wait(arrived)
        if arrived and self._scattered():
            name = "tp.all_gather.pipeline"
            self.line.comm("compute", "tp", "all_gather", self.s.full_bytes, name, step.microbatch, timer=f"{message}-recv")

    def _shard(self, step: Step, placed: Placed, before: Ref | None) -> None:
        """What sharded gradients and parameters need around one block, in every microbatch."""
        stage = self.s.training.data_parallel.stage
        if stage == "full":
            params = self.stage.buffers[step.chunk].params
            final = step.microbatch == self._final[step.chunk]
            self.fsdp.around(placed, self.stage.held[step.chunk], params, step.kind != "forward", final, before)
        elif stage == "gradients" and step.kind == "backward":
            self.sync.reduce_hooked(step.chunk, [placed])

    def _message(self, step: Step) -> None:
        if step.kind == "wait":
            batch = self._posted[self._before :]
            self.line.time_as(batch_timer([kind for kind, _ in batch]), *(ref for _, ref in batch))
            self.line.wait(*(ref for _, ref in self._posted))
            if not self.pipe.overlap and self.s.training.pipeline.batch_p2p_sync:
                self.line.wait(*self.line.latest("dp", "expt_dp", "gather"))
            self._posted, self._before = [], 0
        elif step.kind.startswith("wait_send_"):
            self.line.wait(self._sent.get(step.kind[10:]))
        else:
            self._post(step)

    def _post(self, step: Step) -> None:
        action, kind = step.kind.split("_")
        timer = f"{kind}-{action}"
        turned = step.chunk in self.turned
        onward = (kind == "forward") != turned
        stream = {
            ("send", True): "pp_send_next",
            ("recv", True): "pp_recv_prev",
            ("send", False): "pp_send_prev",
            ("recv", False): "pp_recv_next",
        }
        rev = "rev_" if turned else ""
        dim = f"pp_{rev}{'fwd' if kind == 'forward' else 'bwd'}_{'out' if action == 'send' else 'in'}"
        name = f"pp.sendrecv.{kind}"
        nbytes = self.s.shard_bytes // (self.s.lay.tp if self._scattered() else 1)
        on = stream[action, onward].replace("pp_", f"pp_{rev}")
        ref = self.line.comm(on, dim, "sendrecv", nbytes, name, step.microbatch, (self.line.end,), timer)
        self._posted.append((timer, ref))
        if action == "send":
            self._sent[kind] = ref
        else:
            self._arrived[kind, step.chunk, step.microbatch] = ref

    def _gathers_ahead(self) -> bool:
        dp = self.s.training.data_parallel
        return dp.overlap_param_gather and dp.stage in ("optimizer", "gradients")

    def _aligned(self) -> bool:
        return self._gathers_ahead() and self.s.training.data_parallel.align_param_gather and self.pipe.chunks > 1

    def _gather_first(self) -> None:
        if self._aligned():
            for index in range(min(2, self.pipe.chunks)):
                self.sync.gather_chunk(index)

    def _gather_ahead(self, order: list[Step], k: int) -> None:
        """With alignment, chunk q >= 2 is gathered before virtual step k where k + stage begins chunk q - 1."""
        ahead = k + self.number
        if self._aligned() and ahead < len(order) and order[ahead].microbatch == 0 and 1 <= order[ahead].chunk < self.pipe.chunks - 1:
            self.sync.gather_chunk(order[ahead].chunk + 1, self.line.end)

    def _reduce_aligned(self, order: list[Step], k: int) -> None:
        """With interleaving and alignment, reduce the chunk whose last microbatch was virtual step k - stage."""
        dp, seen = self.s.training.data_parallel, k - self.number
        aligned = dp.overlap_grad_reduce and dp.align_grad_reduce and dp.stage not in ("gradients", "full")
        if self.pipe.chunks == 1 or self.turned or not aligned or seen < 0:
            return
        step = order[seen]
        if step.microbatch == self._final[step.chunk]:
            self._launched.add(step.chunk)
            self.sync.reduce_chunk(step.chunk, self.line.end)

    def _reduce_left(self) -> None:
        """Reduce what is left: from hooks where Megatron has them, else after the last backward."""
        dp = self.s.training.data_parallel
        if dp.stage in ("gradients", "full"):
            return
        if self.turned:  # both holders of a chunk sum their copies up: they go by depth
            for index in sorted(range(self.pipe.chunks), key=lambda i: _place(self.s)(self.number, i, self.pipe)):
                self.sync.reduce_chunk(index, self.line.end)
            return
        for index in sorted(set(self._last) - self._launched, key=lambda i: self._last[i][-1].start[0]):
            if dp.overlap_grad_reduce and (self.number == 0 or not dp.align_grad_reduce):
                self.sync.reduce_hooked(index, self._last[index])
            else:
                self.sync.reduce_chunk(index, self.line.end)


def play_all(s: Shape, tables: Tables) -> tuple[list[Stage], list[Program]]:
    """Return what every stage holds, and its program."""
    pipe, turned = pipe_of(s), _turned(s)
    blocks = Blocks(s, tables)
    every = stages(s)
    return every, [Play(s, blocks, r, stage, pipe, turned).run() for r, stage in enumerate(every)]
