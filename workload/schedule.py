"""What a pipeline schedule says: the order in which one stage computes, sends and receives.

A schedule is a file with `steps(stage, pipe) -> list[Step]`; where chunks do not lie one after another (chunk q of stage r at virtual
stage q * pp + r) it also has `virtual_stage(stage, chunk, pipe) -> int`, and `reversed_chunks(pipe) -> set[int]` if some travel from last
to first stage.
"""

from typing import NamedTuple


class Step(NamedTuple):
    """One thing that a stage does next.

    forward, backward: compute of a chunk and microbatch. inputs, weights: the two halves of a backward pass, gradients of inputs first.
    send_forward, recv_forward, send_backward, recv_backward: post a message; the chunk is that of this
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


def ahead(steps: list[Step]) -> list[Step]:
    """Post every receive one compute step earlier, so that the message can arrive beside that step."""
    out: list[Step] = []
    for step in steps:
        at = len(out)
        if step.kind.startswith("recv_"):
            computes = [i for i, s in enumerate(out) if s.kind in ("forward", "backward", "inputs", "weights")]
            at = computes[-1] if computes else at
        out.insert(at, step)
    return out


def in_flight(steps: list[Step]) -> int:
    """Return the largest number of forward passes whose backward has not run yet."""
    now = peak = 0
    for step in steps:
        now += (step.kind == "forward") - (step.kind in ("backward", "inputs"))
        peak = max(peak, now)
    return peak
