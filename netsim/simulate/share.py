"""What each rank did of a packet run, and all of them together."""

from typing import Any, NamedTuple

import numpy as np

from netsim.kernels.structs import Array
from netsim.network.packet.part import Part


class Share(NamedTuple):
    """Of one rank."""

    played_s: float  # in its engine
    waited_s: float  # in exchanges
    exchanges: int  # of all ranks
    sent_bytes: int  # of messages, in exchanges and hand-overs
    windows: int  # that its engine played
    sets: int  # of planes that share nothing
    most_ranks: int  # that would find something to play
    hand_over_s: float = 0.0  # what handing over would take, or takes, for each window; 0 where no ranks could share planes
    hand_overs: int = 0  # between the ranks that share a plane
    crossed: tuple[tuple[int, int], ...] = ()  # (rank, bytes of packets that crossed from here)

    def with_part(self, part: Part | None, mates: Array) -> "Share":
        """With the hand-overs of a part of a plane that ranks `mates` share."""
        if part is None:
            return self
        crossed = tuple((int(r), int(n)) for r, n in zip(mates, part.crossed, strict=True) if n)
        return self._replace(sent_bytes=self.sent_bytes + part.handed_over_bytes, hand_overs=part.hand_overs, crossed=crossed)


def together(shares: list[Share]) -> dict[str, Any]:
    """The section `parallel` of a summary.

    exchanges: of all ranks; hand_overs: between ranks that share a plane, most of any; bytes_per_exchange: of messages of all ranks, over
    exchanges and hand-overs; played_s, waited_s: mean of the ranks; imbalance: the busiest rank's time in its engine over the mean;
    windows: most that an engine played; sets: of planes that share nothing; most_ranks: that would find something to play;
    hand_over_s: measured before the run, for each window; 0 where no ranks could share planes;
    cut_bytes: bytes of packets that crossed from one rank to another, all in all and per pair.
    """
    played = np.array([share.played_s for share in shares])
    meetings = shares[0].exchanges + max(share.hand_overs for share in shares)
    pairs = {f"{rank} > {to}": n for rank, share in enumerate(shares) for to, n in share.crossed}
    return {
        "exchanges": shares[0].exchanges,
        "hand_overs": max(share.hand_overs for share in shares),
        "bytes_per_exchange": sum(share.sent_bytes for share in shares) / max(meetings, 1),
        "waited_s": float(np.mean([share.waited_s for share in shares])),
        "played_s": float(played.mean()),
        "imbalance": float(played.max() / max(played.mean(), 1e-9)),
        "windows": max(share.windows for share in shares),
        "sets": shares[0].sets,
        "most_ranks": shares[0].most_ranks,
        "hand_over_s": max(share.hand_over_s for share in shares),
        "cut_bytes": sum(pairs.values()),
        "cut_bytes_of_pairs": pairs,
    }


def merged(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Counters over all ranks: each is counted by one of them, the others saw nothing."""
    return {
        name: np.maximum.reduce([p[name] for p in parts]) if name == "queue_max" else np.add.reduce([p[name] for p in parts])
        for name in parts[0]
    }


def merged_resent(parts: list[Array]) -> Array:
    """(communicator, end, packets sent again), int64[K, 3] in ascending order; ranks that share a call have each counted their own."""
    rows = np.concatenate(parts)
    keys, which = np.unique(rows[:, :2], axis=0, return_inverse=True)
    return np.column_stack([keys, np.bincount(which.ravel(), rows[:, 2], len(keys)).astype(np.int64)])
