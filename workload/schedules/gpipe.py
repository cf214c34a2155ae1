"""GPipe: all forwards, then all backwards in reverse order. Source: Huang et al., arXiv 1811.06965."""

from workload.schedule import Pipe, Step, ahead


def steps(stage: int, pipe: Pipe) -> list[Step]:
    """Return the order of one stage; messages travel beside compute."""
    first, last = stage == 0, stage == pipe.stages - 1
    out: list[Step] = []
    for mb in range(pipe.microbatches):
        out += [] if first else [Step("recv_forward", 0, mb)]
        out.append(Step("forward", 0, mb))
        out += [] if last else [Step("send_forward", 0, mb)]
    for mb in reversed(range(pipe.microbatches)):
        out += [] if last else [Step("recv_backward", 0, mb)]
        out.append(Step("backward", 0, mb))
        out += [] if first else [Step("send_backward", 0, mb)]
    return ahead(out)
