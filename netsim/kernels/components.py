"""Connected components of an undirected graph, by union-find with path halving (Tarjan, van Leeuwen, J. ACM 1984)."""

import numpy as np
from numba import njit

from netsim.kernels.structs import Array


@njit(cache=True)
def components(n: int, a: Array, b: Array) -> Array:
    """Return int32[n]: the component of each vertex, numbered in order of their smallest vertex; `a[i]`, `b[i]` are the ends of edge i."""
    parent = np.arange(n).astype(np.int32)
    for i in range(a.size):
        x, y = a[i], b[i]
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        parent[max(x, y)] = min(x, y)
    label, count = np.empty(n, np.int32), 0
    for v in range(n):
        # a root is the smallest vertex of its component, so it has been labelled already
        root = v
        while parent[root] != root:
            root = parent[root]
        if root == v:
            label[v] = count
            count += 1
        else:
            label[v] = label[root]
    return label
