"""ZB-H1: 1F1B with the weight gradients split off and put where a stage would wait; memory as 1F1B.

The backward pass computes gradients of inputs first; those of weights follow `stage` microbatches later, so that deep stages pass
gradients on sooner. Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241.
"""

from workload.schedule import Pipe, Step, ahead


def steps(stage: int, pipe: Pipe) -> list[Step]:
    """Return the order of one stage; messages travel beside compute."""
    p, m = pipe.stages, pipe.microbatches
    first, last = stage == 0, stage == p - 1
    warm = min(p - stage - 1, m)
    out: list[Step] = []
    done = 0

    def forward(mb: int) -> list[Step]:
        return [*([] if first else [Step("recv_forward", 0, mb)]), Step("forward", 0, mb), *([] if last else [Step("send_forward", 0, mb)])]

    def backward(mb: int) -> list[Step]:
        return [
            *([] if last else [Step("recv_backward", 0, mb)]),
            Step("inputs", 0, mb),
            *([] if first else [Step("send_backward", 0, mb)]),
        ]

    for mb in range(warm):
        out += forward(mb)
    for mb in range(m):
        out += forward(warm + mb) if warm + mb < m else []
        out += backward(mb)
        while done <= mb - stage or (mb >= m - warm and done <= mb - (m - 1 - mb)):
            out.append(Step("weights", 0, done))
            done += 1
    return ahead(out + [Step("weights", 0, mb) for mb in range(done, m)])
