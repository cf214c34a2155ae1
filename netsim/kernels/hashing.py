"""Hashes of 64-bit words (splitmix64's finaliser), for random numbers that are functions of their place and for signatures of sets."""

import numpy as np

from netsim.kernels.structs import Array


def mix(words: Array) -> Array:
    """Scramble uint64 words; equal words give equal results."""
    with np.errstate(over="ignore"):
        h = words + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return h ^ (h >> np.uint64(31))
