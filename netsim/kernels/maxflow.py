"""Maximum flow by blocking flows on level graphs (Dinic, Soviet Math. Dokl. 11, 1970), capacities int64.

Arc 2i runs along edge i, arc 2i + 1 against it; what flows on one is capacity of the other. Each phase finds distances from the source by
breadth-first search and then fills shortest ways until none is left, never looking twice at an arc that leads nowhere.
"""

import numpy as np
from numba import njit

from netsim.kernels.structs import Array


@njit(cache=True)
def max_flow(n: int, tail: Array, head: Array, capacity: Array, source: int, sink: int) -> int:
    """Return the largest flow from `source` to `sink`; edge i goes from tail[i] to head[i], vertices 0 .. n - 1."""
    m = tail.size
    left, to = np.zeros(2 * m, np.int64), np.empty(2 * m, np.int64)
    degree = np.zeros(n + 1, np.int64)
    for i in range(m):
        left[2 * i], to[2 * i], to[2 * i + 1] = capacity[i], head[i], tail[i]
        degree[tail[i] + 1] += 1
        degree[head[i] + 1] += 1
    ptr = np.cumsum(degree)
    arcs, fill = np.empty(2 * m, np.int64), ptr[:-1].copy()
    for i in range(m):
        arcs[fill[tail[i]]] = 2 * i
        fill[tail[i]] += 1
        arcs[fill[head[i]]] = 2 * i + 1
        fill[head[i]] += 1

    total = 0
    level, queue, way = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    while True:
        level[:] = -1
        level[source], queue[0], first, last = 0, source, 0, 1
        while first < last:
            v = queue[first]
            first += 1
            for k in range(ptr[v], ptr[v + 1]):
                w = to[arcs[k]]
                if left[arcs[k]] > 0 and level[w] < 0:
                    level[w] = level[v] + 1
                    queue[last] = w
                    last += 1
        if level[sink] < 0:
            return total

        current, depth, v = ptr[:-1].copy(), 0, source
        while True:
            if v == sink:
                # push what the narrowest arc takes and step back to before it
                amount = left[way[0]]
                for d in range(1, depth):
                    amount = min(amount, left[way[d]])
                total += amount
                back = 0
                for d in range(depth - 1, -1, -1):
                    left[way[d]] -= amount
                    left[way[d] ^ 1] += amount
                    if left[way[d]] == 0:
                        back = d
                depth, v = back, to[way[back] ^ 1]
            elif current[v] == ptr[v + 1]:
                # a dead end
                if v == source:
                    break
                depth -= 1
                v = to[way[depth] ^ 1]
                current[v] += 1
            else:
                arc = arcs[current[v]]
                if left[arc] > 0 and level[to[arc]] == level[v] + 1:
                    way[depth] = arc
                    depth += 1
                    v = to[arc]
                else:
                    current[v] += 1
