"""The double binary tree over nodes: two trees in which every node is a leaf of one and (almost always) inside the other.

Source: NCCL src/graph/trees.cc, after Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan".
"""

import numpy as np


def lowest_bit(n: int) -> int:
    """Lowest set bit of n."""
    return n & -n


def parent(nodes: int, node: int) -> int:
    """Parent of a node in the first tree; -1 at the root, node 0."""
    if node == 0:
        return -1
    bit = lowest_bit(node)
    up = (node ^ bit) | (bit << 1)
    return up if up < nodes else node ^ bit


def tree(nodes: int, which: int) -> np.ndarray:
    """Return the parent of every node in tree 0 or 1, int64[nodes], -1 at the root; tree 1 mirrors (even) or shifts (odd) tree 0."""
    first = np.array([parent(nodes, n) for n in range(nodes)], np.int64)
    if which == 0 or nodes == 1:
        return first
    node = np.arange(nodes)
    if nodes % 2 == 0:
        mirrored = first[nodes - 1 - node]
        return np.where(mirrored < 0, -1, nodes - 1 - mirrored)
    shifted = first[(node - 1) % nodes]
    return np.where(shifted < 0, -1, (shifted + 1) % nodes)
