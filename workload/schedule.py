"""What a pipeline schedule says: the order in which one stage computes, sends and receives.

A schedule is a file with `steps(stage, pipe) -> list[Step]`; where chunks do not lie one after another (chunk q of stage r at virtual
stage q * pp + r) it also has `virtual_stage(stage, chunk, pipe) -> int`, and `reversed_chunks(pipe) -> set[int]` if some travel from last
to first stage.
"""

from typing import NamedTuple


class Step(NamedTuple):
    """One thing that a stage does next.

    forward, backward: compute of a chunk and microbatch (backward: gradients of inputs only where `weights` steps follow).
    weights: gradients of weights. send_forward, recv_forward, send_backward, recv_backward: post a message; the chunk is that of this
    stage which produced it or will consume it. wait: everything posted since the last wait must have completed before the next
    compute. wait_send_forward, wait_send_backward: the message of this kind posted last must have.
    A compute step waits for the message that it consumes in any case.
    """

    kind: str
    chunk: int = -1
    microbatch: int = -1


class Pipe(NamedTuple):
    """What a schedule needs to know.

    group: microbatches per group of virtual stages. overlap: messages travel beside compute. flush: in warm-up and cool-down too.
    extra: warm-up microbatches that an overlapped expert exchange adds (0 or 1).
    """

    stages: int
    chunks: int
    microbatches: int
    group: int
    overlap: bool
    flush: bool = False
    extra: int = 0


WAIT = Step("wait")


def steps_of(names: str, chunk: int, microbatch: int) -> list[Step]:
    """Return steps of the kinds in `names`, separated by blanks."""
    return [Step(name, chunk, microbatch) for name in names.split()]


def in_flight(steps: list[Step]) -> int:
    """Return the largest number of forward passes whose backward has not run yet."""
    now = peak = 0
    for step in steps:
        now += (step.kind == "forward") - (step.kind == "backward")
        peak = max(peak, now)
    return peak
