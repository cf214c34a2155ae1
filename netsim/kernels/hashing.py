"""Hashes of 64-bit words, for random numbers that are functions of their place and for signatures of sets.

Both functions are the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

import numpy as np
from numba import njit

from netsim.kernels.structs import Array


@njit(cache=True, inline="always")
def mix_word(x: np.uint64) -> np.uint64:
    """Scramble one word, inside kernels: 64 well-mixed bits of 64 bits."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix(words: Array) -> Array:
    """Scramble an array of uint64 words in NumPy."""
    with np.errstate(over="ignore"):
        return np.asarray(mix_word.py_func(words))
