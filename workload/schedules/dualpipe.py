"""DualPipe: microbatches enter at both ends of the pipeline; every stage holds two chunks, that of its own depth and that of its mirror
image.

Half of the microbatches travel from the first to the last stage through chunk 0, the other half back through chunk 1 (stage pp - 1 - r of
the model). In the middle of the iteration the forward of one direction is next to the backward of the other, so that communication of
each can hide behind compute of the other (`experts.overlap` weaves them). Weight gradients are split off where a stage would wait.
Parameters exist twice, and gradients are summed over both copies. Source: DeepSeek-AI, arXiv 2412.19437, section 3.2.1, and
github.com/deepseek-ai/DualPipe.
"""

from collections import deque

from workload.schedule import Pipe, Step, ahead

CHUNKS = 2


def virtual_stage(stage: int, chunk: int, pipe: Pipe) -> int:
    """Depth of a chunk in the model."""
    return stage if chunk == 0 else pipe.stages - 1 - stage


def reversed_chunks(pipe: Pipe) -> set[int]:
    """Chunks whose microbatches travel from the last stage to the first."""
    return {1}


def problems(pipe: Pipe) -> list[str]:
    """What this schedule cannot do."""
    out = [] if pipe.stages % 2 == 0 else [f"expected an even pp with dualpipe; got {pipe.stages}"]
    if pipe.microbatches % 2 or pipe.microbatches < 2 * pipe.stages:
        out.append(f"expected an even number of microbatches, at least 2 pp = {2 * pipe.stages}, with dualpipe; got {pipe.microbatches}")
    return out


class _Order:
    """Steps of one stage; `phase` 0 is the direction that enters nearer to this stage."""

    def __init__(self, stage: int, pipe: Pipe) -> None:
        self.stage, self.pipe = stage, pipe
        self.flip = stage >= pipe.stages // 2
        half = pipe.microbatches // 2
        self.next = {(kind, chunk): chunk * half for kind in ("forward", "backward") for chunk in (0, 1)}
        self.later: deque[tuple[int, int]] = deque()
        self.out: list[Step] = []

    def _take(self, kind: str, phase: int) -> tuple[int, int]:
        chunk = phase ^ int(self.flip)
        mb = self.next[kind, chunk]
        self.next[kind, chunk] += 1
        return chunk, mb

    def _depth(self, chunk: int) -> int:
        return virtual_stage(self.stage, chunk, self.pipe)

    def forward(self, phase: int) -> None:
        chunk, mb = self._take("forward", phase)
        first, last = self._depth(chunk) == 0, self._depth(chunk) == self.pipe.stages - 1
        self.out += [] if first else [Step("recv_forward", chunk, mb)]
        self.out.append(Step("forward", chunk, mb))
        self.out += [] if last else [Step("send_forward", chunk, mb)]

    def backward(self, phase: int, split: bool = False) -> None:
        chunk, mb = self._take("backward", phase)
        first, last = self._depth(chunk) == 0, self._depth(chunk) == self.pipe.stages - 1
        self.out += [] if last else [Step("recv_backward", chunk, mb)]
        self.out.append(Step("inputs" if split else "backward", chunk, mb))
        self.out += [] if first else [Step("send_backward", chunk, mb)]
        if split:
            self.later.append((chunk, mb))

    def weights(self) -> None:
        self.out.append(Step("weights", *self.later.popleft()))


def steps(stage: int, pipe: Pipe) -> list[Step]:
    """Return the order of one stage; messages travel beside compute."""
    p, o = pipe.stages, _Order(stage, pipe)
    half_rank = min(stage, p - 1 - stage)
    outer = p // 2 - half_rank - 1
    for _ in range(2 * outer):
        o.forward(0)
    for _ in range(half_rank + 1):
        o.forward(0)
        o.forward(1)
    for _ in range(outer):
        o.backward(1, split=True)
        o.weights()
        o.forward(1)
    for _ in range(pipe.microbatches // 2 - p + half_rank + 1):
        o.forward(0)
        o.backward(1)
        o.forward(1)
        o.backward(0)
    for _ in range(outer):
        o.backward(1)
        o.forward(1)
        o.backward(0)
    split = False
    for i in range(half_rank + 1):
        split = split or (i == (half_rank + 1) // 2 and half_rank % 2 == 1)
        o.backward(1, split)
        split = split or (i == (half_rank + 1) // 2 and half_rank % 2 == 0)
        o.backward(0, split)
    for _ in range(outer):
        o.weights()
        o.backward(0, split=True)
    while o.later:
        o.weights()
    return ahead(o.out)
