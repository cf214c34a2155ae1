"""Equal-cost next hops from every switch to every group of destinations, by breadth-first search backwards from each group.

The graph holds switches only and only links that work. A group is a set of switches (the leaves its NICs hang on); they are at distance 1,
counted in links to the NIC. From a switch at distance d, every link to a switch at distance d - 1 is a candidate. Ties are not broken here:
all of them are kept, whatever the shape of the graph.

Rows with the same candidates share one set. A set is recognised by the sum of its links' hashes, gathered while the search passes over the
links anyway, and its size; among a million different sets, two would be taken for one with a chance of 3e-8. Sets are kept in an
open-addressing hash table. Cost: groups x links; memory: switches x groups.
"""

import numpy as np
from numba import njit

from netsim.kernels.hashing import mix_word
from netsim.kernels.structs import Array

_EMPTY = np.int32(-1)


@njit(cache=True)
def _grown(old: Array, size: int, fill: int) -> Array:
    new = np.full(size, fill, old.dtype)
    new[: old.size] = old
    return new


@njit(cache=True)
def _rehashed(keys: Array, size: int) -> Array:
    """A table of `size` slots (a power of two) that holds set k under keys[k]."""
    table = np.full(size, _EMPTY, np.int32)
    for k in range(keys.size):
        slot = np.int64(keys[k] & np.uint64(size - 1))
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = k
    return table


@njit(cache=True)
def next_hops(
    out_ptr: Array, out_link: Array, out_peer: Array, in_ptr: Array, in_link: Array, in_peer: Array, group_ptr: Array, group_switch: Array
) -> tuple[Array, Array, Array, Array]:
    """Return (hop_dist int16[S * G], hop_set int32[S * G], set_ptr int64[K + 1], set_idx int32[...]), see `structs.Routes`.

    `out_*` lists each switch's working links to other switches with the peer, `in_*` the links that enter it likewise;
    `group_ptr`, `group_switch` the switches each group hangs on.
    """
    n, n_groups = out_ptr.size - 1, group_ptr.size - 1
    hop_dist = np.full(n * n_groups, -1, np.int16)
    hop_set = np.full(n * n_groups, -1, np.int32)
    set_ptr, set_idx, n_sets = np.zeros(1024, np.int64), np.empty(8192, np.int32), 0
    keys, table = np.empty(1023, np.uint64), np.full(4096, _EMPTY, np.int32)
    dist, queue = np.full(n, -1, np.int16), np.empty(n, np.int32)
    key, size = np.zeros(n, np.uint64), np.zeros(n, np.int32)
    in_hash = np.empty(in_link.size, np.uint64)
    for i in range(in_link.size):
        in_hash[i] = mix_word(np.uint64(in_link[i]))

    for g in range(n_groups):
        # distances, nearest switches first; whoever is one further away has this link among its candidates
        head, tail = 0, 0
        for i in range(group_ptr[g], group_ptr[g + 1]):
            dist[group_switch[i]] = 1
            queue[tail] = group_switch[i]
            tail += 1
        n_owners = tail
        while head < tail:
            s = queue[head]
            head += 1
            further = dist[s] + 1
            for i in range(in_ptr[s], in_ptr[s + 1]):
                p = in_peer[i]
                if dist[p] < 0:
                    dist[p], key[p], size[p] = further, np.uint64(0), 0
                    queue[tail] = p
                    tail += 1
                if dist[p] == further:
                    key[p] += in_hash[i]
                    size[p] += 1

        for q in range(tail):
            s = queue[q]
            hop_dist[s * n_groups + g] = dist[s]
            if q < n_owners:
                continue
            # the set, if it is known
            slot = np.int64(key[s] & np.uint64(table.size - 1))
            k = table[slot]
            while k >= 0 and not (keys[k] == key[s] and set_ptr[k + 1] - set_ptr[k] == size[s]):
                slot = (slot + 1) & (table.size - 1)
                k = table[slot]
            # a new set
            if k < 0:
                k = np.int32(n_sets)
                if n_sets == keys.size:
                    keys = _grown(keys, 2 * keys.size + 1, 0)
                    set_ptr = _grown(set_ptr, keys.size + 1, 0)
                while set_ptr[k] + size[s] > set_idx.size:
                    set_idx = _grown(set_idx, 2 * set_idx.size, 0)
                end = set_ptr[k]
                for i in range(out_ptr[s], out_ptr[s + 1]):
                    if dist[out_peer[i]] == dist[s] - 1:
                        set_idx[end] = out_link[i]
                        end += 1
                keys[k], set_ptr[k + 1] = key[s], end
                n_sets += 1
                table[slot] = k
                if 2 * n_sets > table.size:
                    table = _rehashed(keys[:n_sets], 4 * table.size)
            hop_set[s * n_groups + g] = k

        for q in range(tail):
            dist[queue[q]] = -1

    return hop_dist, hop_set, set_ptr[: n_sets + 1].copy(), set_idx[: set_ptr[n_sets]].copy()
