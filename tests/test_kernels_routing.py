"""Next hops against a breadth-first search in plain Python on random graphs; the hash against its published values; hashes and mod."""

from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from netsim.config.topology import Edge, Fabric, Switch
from netsim.kernels import routing
from netsim.kernels.components import components
from netsim.kernels.hashing import mix_word
from netsim.kernels.maxflow import max_flow
from netsim.kernels.structs import Routes, Topology


def test_mix_is_splitmix64() -> None:
    """The first outputs for seed 0: the state grows by the golden gamma, mix_word(x) adds it first."""
    gamma = 0x9E3779B97F4A7C15
    outputs = [int(np.uint64(mix_word(np.uint64(i * gamma % 2**64)))) for i in range(3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@st.composite
def random_graph(draw: st.DrawFn) -> tuple[Topology, Fabric]:
    """Some leaves and spines, cabled at random, some cables dead in one direction."""
    leaves, spines = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    names = [f"leaf {i}" for i in range(leaves)] + [f"spine {i}" for i in range(spines)]
    nodes = draw(st.integers(2, 6))
    edges = [Edge(f"nic n{n}.0", draw(st.sampled_from(names))) for n in range(nodes) for _ in range(draw(st.integers(1, 2)))]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda p: p[0] != p[1])
    edges += [Edge(a, b, count=draw(st.integers(1, 2))) for a, b in draw(st.lists(pairs, min_size=1, max_size=12))]
    named = {e.a for e in edges} | {e.b for e in edges}
    edges += [Edge(name, names[0]) for name in names if name not in named and name != names[0]]
    edges += [] if names[0] in named or any(names[0] in (e.a, e.b) for e in edges) else [Edge(names[0], names[-1])]
    fabric = Fabric(builder="custom", nodes=nodes, gpus_per_node=1, edges=tuple(edges), switch=Switch(radix=64))
    topology = topologies.build(fabric)
    cables = np.flatnonzero(topology.link_tier >= 2)
    dead = draw(st.lists(st.sampled_from(cables.tolist()), max_size=4))
    return topologies.with_rates(topology, np.array(dead, int), 0.0), fabric


def distances(topology: Topology, nic: int) -> dict[int, int]:
    """Links from each switch to a NIC over working links; NICs do not forward, and need both directions of their cable."""
    t, first = topology, topology.n_gpus + topology.n_nodes
    switch_0 = routing.first_switch(t)
    found: dict[int, int] = {}
    queue = deque()
    for k in range(t.link_src.size):
        if t.link_dst[k] == first + nic and t.link_src[k] >= switch_0 and t.link_rate[k] > 0 and t.link_rate[t.link_reverse[k]] > 0:
            found.setdefault(int(t.link_src[k]), 1)
    queue.extend(found)
    while queue:
        v = queue.popleft()
        for k in np.flatnonzero((t.link_dst == v) & (t.link_rate > 0)):
            u = int(t.link_src[k])
            if u >= switch_0 and u not in found:
                found[u] = found[v] + 1
                queue.append(u)
    return found


def check_routes(topology: Topology, routes: Routes) -> None:
    """Every switch towards every NIC: candidates are exactly the working links to switches that are one nearer."""
    t, switch_0 = topology, routing.first_switch(topology)
    for nic in range(t.n_nics):
        dist = distances(t, nic)
        for s in range(t.n_switches):
            first, last = routing.candidates(routes, s, nic)
            found = routes.set_idx[first:last].tolist()
            mine = dist.get(switch_0 + s, -1)
            assert routes.hop_dist[s * routes.n_groups + routes.nic_group[nic]] == mine
            links = np.flatnonzero((t.link_src == switch_0 + s) & (t.link_rate > 0))
            nearer = [k for k in links.tolist() if dist.get(int(t.link_dst[k]), -1) == mine - 1] if mine > 1 else []
            assert sorted(found) == nearer
            hop = routing.next_hop(routes, s, (nic + 1) % t.n_nics, nic, 5)
            if mine > 1:
                assert hop in nearer
            elif mine == 1:
                assert t.link_src[hop] == switch_0 + s and t.link_dst[hop] == t.n_gpus + t.n_nodes + nic and t.link_rate[hop] > 0
            else:
                assert hop == -1


@settings(max_examples=60, deadline=None)
@given(random_graph(), st.sampled_from(["ecmp", "static", "dmodk"]))
def test_next_hops_on_random_graphs(graph: tuple[Topology, Fabric], mode: str) -> None:
    check_routes(graph[0], topologies.routes(*graph, seed=3, mode=mode))


@settings(max_examples=60, deadline=None)
@given(random_graph(), st.integers(0, 100))
def test_paths_lead_from_nic_to_nic(graph: tuple[Topology, Fabric], qp: int) -> None:
    topology, fabric = graph
    routes, nic_0 = topologies.routes(topology, fabric), topology.n_gpus + topology.n_nodes
    src, dst = (x.ravel() for x in np.meshgrid(np.arange(topology.n_nics), np.arange(topology.n_nics), indexing="ij"))
    ptr, links = routing.paths(topology, routes, src, dst, np.full(src.size, qp))
    for i in range(src.size):
        path = links[ptr[i] : ptr[i + 1]]
        entries = {int(topology.link_dst[k]) for k in routes.nic_up[src[i]] if k >= 0}
        reach = [d for v, d in distances(topology, int(dst[i])).items() if v in entries]
        if src[i] == dst[i] or not reach:
            assert path.size == 0
            continue
        assert path.size == 1 + min(reach)
        assert topology.link_src[path[0]] == nic_0 + src[i] and topology.link_dst[path[-1]] == nic_0 + dst[i]
        assert np.array_equal(topology.link_dst[path[:-1]], topology.link_src[path[1:]])
        assert np.all(topology.link_rate[path] > 0)


def test_many_sets_outgrow_the_first_tables() -> None:
    """More sets than the tables start with: the ring of leaves has two neighbours for every other leaf, the star next to it one."""
    n = 70
    ring = tuple(Edge(f"leaf {i}", f"leaf {(i + 1) % n}") for i in range(n))
    fabric = Fabric(builder="custom", nodes=n, gpus_per_node=1, edges=(*(Edge(f"nic n{i}.0", f"leaf {i}") for i in range(n)), *ring))
    topology = topologies.build(fabric)
    routes = topologies.routes(topology, fabric)
    # a leaf sends left, right, or (to the opposite leaf) either way
    assert routes.set_ptr.size - 1 == 3 * n
    assert sorted(np.unique(np.diff(routes.set_ptr), return_counts=True)[1].tolist()) == [n, 2 * n]
    assert routes.hop_dist.max() == n // 2 + 1
    tree = Fabric(builder="fat_tree", nodes=432, gpus_per_node=1, switch=Switch(radix=12))
    routes = topologies.routes(topologies.build(tree), tree)
    # leaf: up; spine: up, and down to 6 leaves; core: down to 12 pods
    assert routes.set_ptr.size - 1 == 72 * 1 + 72 * (1 + 6) + 36 * 12


def _spread(n: int, mode: str = "ecmp", **ids: int) -> np.ndarray:
    fabric = Fabric(nodes=2, gpus_per_node=1)
    routes = topologies.routes(topologies.build(fabric), fabric, seed=ids.pop("seed", 1), mode=mode)
    at = {"switch": 0, "src": 0, "dst": 1, "qp": 0} | ids
    vary = next(k for k, v in at.items() if v < 0)
    picks = [routing.choose(routes, n, 1, *(i if k == vary else v for k, v in at.items())) for i in range(4000)]
    return np.array(picks)


def test_the_hash_spreads_over_whatever_varies() -> None:
    for vary in ("switch", "src", "qp"):
        for n in (2, 3, 8, 32):
            share = np.bincount(_spread(n, **{vary: -1}), minlength=n)
            # five standard deviations of a binomial distribution
            assert np.all(np.abs(share - 4000 / n) < 5 * np.sqrt(4000 / n))


def test_static_ignores_the_queue_pair_and_ecmp_the_seed_does_not() -> None:
    assert np.unique(_spread(8, "static", qp=-1)).size == 1
    assert np.unique(_spread(8, "static", switch=-1)).size == 8
    assert not np.array_equal(_spread(8, qp=-1, seed=1), _spread(8, qp=-1, seed=2))


def test_choices_of_two_switches_are_independent() -> None:
    """No polarisation: among the flows that one switch sends to its first port, the next switch still uses all of its ports evenly."""
    first, second = _spread(8, switch=3, qp=-1), _spread(8, switch=4, qp=-1)
    share = np.bincount(second[first == 0], minlength=8)
    assert np.all(np.abs(share - share.mean()) < 5 * np.sqrt(share.mean()))


def test_host_links() -> None:
    topology = topologies.build(Fabric(nodes=2, gpus_per_node=8, nics_per_node=4))
    assert routing.scale_up_links(topology, 9, 12) == (9, -1, 16 + 12)
    near, none = routing.host_links(topology, 9, 4)
    assert none == -1 and topology.link_src[near] == 9 and topology.link_dst[near] == 16 + 2 + 4
    # to a NIC of another GPU: over the bus of the GPU and the bus of the NIC
    own, far = routing.host_links(topology, 9, 7)
    assert topology.link_src[own] == 9 and topology.link_src[far] == 14 and topology.link_dst[far] == 16 + 2 + 7
    assert routing.host_links(topology, 15, 7)[1] == -1


def test_components() -> None:
    label = components(7, np.array([5, 1, 2], np.int32), np.array([3, 2, 6], np.int32))
    assert label.tolist() == [0, 1, 1, 2, 3, 2, 1]


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.data())
def test_max_flow_is_the_smallest_cut(n: int, data: st.DataObject) -> None:
    edge = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 9)).filter(lambda e: e[0] != e[1])
    edges = np.array(data.draw(st.lists(edge, min_size=1, max_size=15)))
    cuts = []
    for side in range(2**n):
        inside = np.array([side >> v & 1 for v in range(n)], bool)
        if inside[0] and not inside[n - 1]:
            cuts.append(int(edges[inside[edges[:, 0]] & ~inside[edges[:, 1]], 2].sum()))
    assert max_flow(n, *(np.ascontiguousarray(edges[:, i]) for i in range(3)), 0, n - 1) == min(cuts)
