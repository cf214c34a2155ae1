"""1F1B over virtual stages (interleaving): chunk q of stage r is virtual stage q * pp + r.

Microbatches go in groups of G; in a group all of one chunk, then the next chunk. Warm-up is 2 (pp - r - 1) + (v - 1) G virtual
microbatches. A leading stage (first forward, last backward) receives what the trailing stage made pp - 1 virtual steps earlier. Without
overlap each steady step ends in one batch of up to four messages; with it receives are waited for where they are used. Source:
Megatron-Core `forward_backward_pipelining_with_interleaving`.
"""

from workload.schedule import WAIT, Pipe, Step


def table(pipe: Pipe) -> list[tuple[int, int]]:
    """Return (chunk, microbatch) of every virtual microbatch, forward."""
    m, g = pipe.microbatches, pipe.group
    return [(q, mb) for start in range(0, m, g) for q in range(pipe.chunks) for mb in range(start, min(m, start + g))]


def steps(stage: int, pipe: Pipe) -> list[Step]:
    """Return the order of one stage."""
    p, v = pipe.stages, pipe.chunks
    forward = table(pipe)
    backward = [(v - 1 - q, mb) for q, mb in forward]
    total = len(forward)
    warm = min(total, 2 * (p - stage - 1) + (v - 1) * pipe.group + pipe.extra)
    out: list[Step] = []

    def send(kind: str, k: int) -> list[Step]:
        chunk, mb = (forward if kind == "forward" else backward)[k]
        end = (chunk, stage) == ((v - 1, p - 1) if kind == "forward" else (0, 0))
        return [] if end or p == 1 else [Step(f"send_{kind}", chunk, mb)]

    def receive(kind: str, k: int) -> list[Step]:
        """What arrives after virtual step `k` (-1: before the first)."""
        order, step, lead, final = (forward, 1, 0, v - 1) if kind == "forward" else (backward, -1, p - 1, 0)
        if k >= total - 1 or p == 1:
            return []
        if stage != lead:
            return [Step(f"recv_{kind}", *order[k + 1])]
        if k < p - 1 or order[k - (p - 1)][0] == final:
            return []
        chunk, mb = order[k - (p - 1)]
        return [Step(f"recv_{kind}", chunk + step, mb)]

    def batch(*parts: list[Step]) -> None:
        posted = [s for part in parts for s in part]
        out.extend([*posted, WAIT] if posted else [])

    def aside(kind: str, k: int) -> None:
        """Post beside compute; the send before this one must have completed."""
        sent = send(kind, k)
        out.extend([Step(f"wait_send_{kind}"), *sent, *receive(kind, k)] if sent else receive(kind, k))

    batch(receive("forward", -1))
    for k in range(warm):
        out.append(Step("forward", *forward[k]))
        if pipe.overlap and pipe.flush:
            aside("forward", k)
            out.extend(receive("backward", -1) if k == warm - 1 else [])
        elif pipe.overlap:
            batch(send("forward", k), receive("forward", k))
            out.extend(receive("backward", -1) if k == warm - 1 and warm < total else [])
        else:
            batch(send("forward", k), receive("forward", k), receive("backward", -1) if k == warm - 1 and warm < total else [])
    if warm == total and not (pipe.overlap and pipe.flush):
        batch(receive("backward", -1))
    elif warm == 0:
        batch(receive("backward", -1)) if not pipe.overlap else out.extend(receive("backward", -1))
    for k in range(total - warm):
        out.append(Step("forward", *forward[warm + k]))
        if pipe.overlap:
            aside("forward", warm + k)
        out.append(Step("backward", *backward[k]))
        if pipe.overlap:
            aside("backward", k)
        else:
            batch(send("forward", warm + k), receive("forward", warm + k), send("backward", k), receive("backward", k))
    for k in range(total - warm, total):
        out.append(Step("backward", *backward[k]))
        if pipe.overlap and pipe.flush:
            aside("backward", k)
        else:
            batch(send("backward", k), receive("backward", k))
    return out
