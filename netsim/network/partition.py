"""Whether ranks should share a plane: what it costs one rank against what handing over costs several.

A plane starts out whole, on the first of the ranks that could share it. Now and then all look at what it has cost since they looked last:
c seconds of processor time in m windows. n ranks would take

    c / n + m h

with h what handing over takes for every window, measured among these ranks before the run, when nothing crosses. That is the least: no two
parts have the same work in the same window, each waits for the other, and what crosses must be filed. Where it would still be less than c
after stretching, the first rank gives its state to the others, and each goes on with its part; so two ranks never share. Results do not
depend on whether planes are cut, nor on when.
"""

import numpy as np

from netsim.kernels.structs import Array

LOOK_S = 0.2
"""Processor time between two looks: long enough to measure, short beside a run that is worth sharing."""
STRETCH = 2.0
"""What parts take over that sum: 2.0 as measured, a training job of 1,024 GPUs on one plane, cut for two ranks on two cores (17.7 s of play
and 10.7 s of waiting where 11.4 and 2.7 s were reckoned)."""


class Look:
    """Costs of a plane that is still whole. All ranks that could share it ask with the same figures, and so decide alike."""

    def __init__(self, ranks: int, hand_over_s: float) -> None:
        """`hand_over_s`: seconds per window."""
        self.ranks, self.hand_over_s = ranks, hand_over_s
        self._played_s, self._windows = np.zeros(ranks), 0

    def pays(self, played_s: Array, windows: int) -> bool:
        """Whether to share from now on; float64[ranks] of processor time in the engines so far, and the windows played in that."""
        since, m = played_s - self._played_s, windows - self._windows
        if since.max() < LOOK_S:
            return False
        self._played_s, self._windows = played_s, windows
        return bool(since.sum() / self.ranks + m * self.hand_over_s < since.max() / STRETCH)
