"""1F1B without interleaving: one forward, one backward in turn, after min(pp - stage - 1, microbatches) forwards.

Messages block compute: what is posted together is one batch that the next kernel waits for. Source: Megatron-Core
`forward_backward_pipelining_without_interleaving`.
"""

from workload.schedule import WAIT, Pipe, Step


def steps(stage: int, pipe: Pipe) -> list[Step]:
    """Return the order of one stage; with one stage all microbatches in turn."""
    m, first, last = pipe.microbatches, stage == 0, stage == pipe.stages - 1
    warm = min(pipe.stages - stage - 1 + pipe.extra, m)
    out: list[Step] = []

    def post(*kinds: tuple[str, int]) -> None:
        ends = {"recv_forward": first, "send_backward": first, "send_forward": last, "recv_backward": last}
        posted = [Step(kind, 0, mb) for kind, mb in kinds if not ends[kind] and mb < m]
        out.extend([*posted, WAIT] if posted else [])

    for i in range(warm):
        post(("recv_forward", i))
        out.append(Step("forward", 0, i))
        post(("send_forward", i))
    if warm < m:
        post(("recv_forward", warm))
    for i in range(m - warm):
        out.append(Step("forward", 0, warm + i))
        post(("send_forward", warm + i), ("recv_backward", i))
        out.append(Step("backward", 0, i))
        post(("send_backward", i), ("recv_forward", warm + i + 1))
    for i in range(m - warm, m):
        post(("recv_backward", i))
        out.append(Step("backward", 0, i))
        post(("send_backward", i))
    return out
