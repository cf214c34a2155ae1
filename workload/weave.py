"""One microbatch's forward woven into another's backward, so that exchanges with experts run beside compute.

Per pair of layers (f forward, b backward) the compute stream runs  b: into the experts | f: attention and router | b: experts | f:
experts | b: attention | f: out of the experts  and the exchanges run on a stream of their own, in the order combine(b), dispatch(f),
dispatch(b), combine(f); each begins when the part before it has been issued, and the part after it waits. Layers without experts follow
one another. Source: Megatron-Core `overlap_moe_expert_parallel_comm` (combined 1F1B).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from workload.tape import LAYER, MICROBATCH, STREAM, STREAMS, WIDTH, Block, Ref, launched


class Part(NamedTuple):
    """Rows first .. end - 1 of the order of issue that concern one layer, and the exchanges among them."""

    first: int
    end: int
    exchanges: list[tuple[int, int]]
    layer: int


class _Half:
    """A recorded block, cut where its layers and exchanges begin; `number` 0 is the forward, 1 the backward half."""

    def __init__(self, block: Block, number: int) -> None:
        self.block, self.number = block, number
        self.refs: dict[Ref, Ref] = {}
        self.waits: list[Ref] = []
        self.deps: dict[Ref, list[Ref]] = {}
        for stream, index, other, at in block.deps.tolist():
            self.deps.setdefault((stream, index), []).append((other, at))

    def layers(self) -> list[Part]:
        """Layers in order of execution; parts outside layers are layers without exchanges."""
        out: list[Part] = []
        ends = {first: end for _, first, end in self.block.exchanges}
        for at, (stream, index) in enumerate(self.block.issued):
            layer = int(self.block.rows[stream][index, LAYER])
            if not out or out[-1].layer != layer:
                out.append(Part(at, at, [], layer))
            if at in ends:
                out[-1].exchanges.append((at, ends[at]))
            out[-1] = out[-1]._replace(end=at + 1)
        return out


class _Woven:
    """The block under construction."""

    def __init__(self) -> None:
        self.rows: list[list[list[int]]] = [[] for _ in STREAMS]
        self.deps: list[tuple[int, int, int, int]] = []
        self.inner: list[tuple[Ref, _Half, Ref]] = []
        """Dependencies inside a half, on rows that may be issued later."""
        self.issued: list[Ref] = []

    def emit(self, half: _Half, first: int, end: int) -> None:
        """Issue rows as they are; the first on the compute stream waits for what the half waits for."""
        for ref in half.block.issued[first:end]:
            new = self._add(half, ref, ref[0])
            self.inner.extend((new, half, other) for other in half.deps.get(ref, ()))
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
        self.deps.extend((*new, *half.refs[other]) for new, half, other in self.inner)
        rows = tuple(np.array(r, dtype=np.int64).reshape(-1, WIDTH) for r in self.rows)
        return Block(rows, np.array(self.deps, dtype=np.int64).reshape(-1, 4), {}, tuple(self.issued), (), launched(self.issued))


def weave(forward: Block, backward: Block, weights: Block | None = None) -> Block:
    """Return one block that runs both; played with (microbatch, layer) of the forward, and of the backward as its second half.

    With `weights` the backward gives gradients of inputs only, and those of the weights of a layer follow at the end of its pair.
    """
    f, b, out = _Half(forward, 0), _Half(backward, 1), _Woven()
    w = _Half(weights, 1) if weights else None
    later = {p.layer: p for p in w.layers()} if w else {}
    mixed = [[part for part in half.layers() if len(part.exchanges) == 2] for half in (f, b)]
    pairs = dict(zip([p.first for p in mixed[0]], mixed[1], strict=False))
    done = 0
    for part in f.layers():
        partner = pairs.get(part.first)
        if partner is None:
            out.emit(f, part.first, part.end)
            continue
        out.emit(b, done, partner.first)
        _pair(out, f, part, b, partner, lambda layer=partner.layer: _weights(out, w, later, layer))  # type: ignore[misc]
        done = partner.end
    out.emit(b, done, len(b.block.issued))
    for layer in list(later):
        _weights(out, w, later, layer)
    return out.block()


def _weights(out: _Woven, w: _Half | None, later: dict[int, Part], layer: int) -> None:
    part = later.pop(layer, None)
    if w and part:
        out.emit(w, part.first, part.end)


def _pair(out: _Woven, f: _Half, fp: Part, b: _Half, bp: Part, weights: Callable[[], None]) -> None:
    dispatch, combine = fp.exchanges
    combine_back, dispatch_back = bp.exchanges
    out.emit(b, bp.first, combine_back[0])
    out.exchange(b, *combine_back)
    out.emit(f, fp.first, dispatch[0])
    out.exchange(f, *dispatch)
    out.emit(b, combine_back[1], dispatch_back[0])
    out.exchange(b, *dispatch_back)
    out.emit(f, dispatch[1], combine[0])
    out.exchange(f, *combine)
    out.emit(b, dispatch_back[1], bp.end)
    weights()
    out.emit(f, combine[1], fp.end)
