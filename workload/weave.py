"""One microbatch's forward woven into another's backward, so that exchanges with experts run beside compute.

Per pair of layers (f forward, b backward) the compute stream runs  b: into the experts | f: attention and router | b: experts | f:
experts | b: attention | f: out of the experts  and the exchanges run on a stream of their own, in the order combine(b), dispatch(f),
dispatch(b), combine(f); each begins when the part before it has been issued, and the part after it waits. Layers without experts follow
one another. Source: Megatron-Core `overlap_moe_expert_parallel_comm` (combined 1F1B).
"""

import numpy as np

from workload.tape import LAYER, MICROBATCH, STREAM, STREAMS, WIDTH, Block, Ref


class _Half:
    """A recorded block, cut where its layers and exchanges begin; `number` 0 is the forward, 1 the backward half."""

    def __init__(self, block: Block, number: int) -> None:
        self.block, self.number = block, number
        self.refs: dict[Ref, Ref] = {}
        self.waits: list[Ref] = []
        self.deps: dict[Ref, list[Ref]] = {}
        for stream, index, other, at in block.deps.tolist():
            self.deps.setdefault((stream, index), []).append((other, at))

    def layers(self) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """(first, end, exchanges) of every layer in order of execution; parts outside layers are layers without exchanges."""
        out: list[tuple[int, int, list[tuple[int, int]]]] = []
        marks = {first: (layer, end) for layer, first, end in self.block.exchanges}
        before = None
        for at, (stream, index) in enumerate(self.block.issued):
            layer = int(self.block.rows[stream][index, LAYER])
            if layer != before:
                out.append((at, at, []))
            before = layer
            first, _, exchanges = out[-1]
            if at in marks:
                exchanges.append((at, marks[at][1]))
            out[-1] = (first, at + 1, exchanges)
        return out


class _Woven:
    """The block under construction."""

    def __init__(self) -> None:
        self.rows: list[list[list[int]]] = [[] for _ in STREAMS]
        self.deps: list[tuple[int, int, int, int]] = []
        self.issued: list[Ref] = []

    def emit(self, half: _Half, first: int, end: int) -> None:
        """Issue rows as they are; the first on the compute stream waits for what the half waits for."""
        for ref in half.block.issued[first:end]:
            new = self._add(half, ref, ref[0])
            self.deps.extend((*new, *half.refs[other]) for other in half.deps.get(ref, ()))
            if ref[0] == 0 and half.waits:
                self.deps.extend((*new, *other) for other in half.waits)
                half.waits = []

    def exchange(self, half: _Half, first: int, end: int) -> None:
        """Issue an exchange on its own stream, after everything on the compute stream so far."""
        last = (0, len(self.rows[0]) - 1)
        for ref in half.block.issued[first:end]:
            new = self._add(half, ref, STREAM["ep"])
            if last[1] >= 0:
                self.deps.append((*new, *last))
            half.waits.append(new)

    def _add(self, half: _Half, ref: Ref, stream: int) -> Ref:
        row = half.block.rows[ref[0]][ref[1]].tolist()
        row[MICROBATCH] = half.number
        new = (stream, len(self.rows[stream]))
        self.rows[stream].append(row)
        self.issued.append(new)
        half.refs[ref] = new
        return new

    def block(self) -> Block:
        """Return what was woven."""
        rows = tuple(np.array(r, dtype=np.int64).reshape(-1, WIDTH) for r in self.rows)
        return Block(rows, np.array(self.deps, dtype=np.int64).reshape(-1, 4), {}, tuple(self.issued), ())


def weave(forward: Block, backward: Block) -> Block:
    """Return one block that runs both; played with (microbatch, layer) of the forward, and of the backward as its second half."""
    f, b, out = _Half(forward, 0), _Half(backward, 1), _Woven()
    mixed = [[part for part in half.layers() if len(part[2]) == 2] for half in (f, b)]
    pairs = dict(zip([p[0] for p in mixed[0]], mixed[1], strict=False))
    done = 0
    for part in f.layers():
        partner = pairs.get(part[0])
        if partner is None:
            out.emit(f, part[0], part[1])
            continue
        out.emit(b, done, partner[0])
        _pair(out, f, part, b, partner)
        done = partner[1]
    out.emit(b, done, len(b.block.issued))
    return out.block()


def _pair(out: _Woven, f: _Half, fp: tuple[int, int, list[tuple[int, int]]], b: _Half, bp: tuple[int, int, list[tuple[int, int]]]) -> None:
    dispatch, combine = fp[2]
    combine_back, dispatch_back = bp[2]
    out.emit(b, bp[0], combine_back[0])
    out.exchange(b, *combine_back)
    out.emit(f, fp[0], dispatch[0])
    out.exchange(f, *dispatch)
    out.emit(b, combine_back[1], dispatch_back[0])
    out.exchange(b, *dispatch_back)
    out.emit(f, dispatch[1], combine[0])
    out.exchange(f, *combine)
    out.emit(b, dispatch_back[1], bp[1])
    out.emit(f, combine[1], fp[1])


