"""What `netsim topo` prints, checked against hand-computed figures, and the ready files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import topologies
from netsim.cli import topo
from netsim.cli.main import main
from netsim.config import load_section
from netsim.config.topology import Fabric, Fault, Switch, Tier
from netsim.errors import InputError
from tests.test_topologies_builders import FABRICS
from topologies.measure import Report, bisection, measure, tier_bisection

READY = sorted(p.stem for p in Path(topologies.__file__).parent.glob("*.yaml"))
# file: leaves, spines, cores, planes, bisection in Tbps
FIGURES = {
    "a100_pcie": (14, 10, 0, 1, 25.6),
    "dgx_a100": (56, 32, 0, 8, 102.4),
    "dgx_b200": (32, 16, 0, 8, 204.8),
    "dgx_h100": (32, 16, 0, 8, 204.8),
    "dgx_h100_superpod": (32, 16, 0, 1, 204.8),
    "dual_plane": (16, 8, 0, 1, 204.8),
    "fat_tree_k16": (128, 128, 64, 1, 204.8),
    "fat_tree_k8": (32, 32, 16, 1, 25.6),
    "leaf_spine": (16, 8, 0, 1, 25.6),
    "rail_only": (8, 0, 0, 8, 204.8),
    "single_tor": (16, 8, 0, 1, 204.8),
}


def report(fabric: Fabric) -> Report:
    topology = topologies.build(fabric)
    return measure(topology, fabric, topologies.routes(topology, fabric))


@pytest.mark.parametrize("name", READY)
def test_ready_files(name: str) -> None:
    figures = report(load_section(name, Fabric))
    switches = {t.tier: t.switches for t in figures.tiers}
    found = (*(switches.get(t, 0) for t in ("leaf", "spine", "core")), figures.planes, figures.bisection_bytes_per_s * 8e-12)
    assert found == pytest.approx(FIGURES[name])
    assert all(t.ports_free >= 0 for t in figures.tiers)
    assert figures.gpus in (128, 1024)


@pytest.mark.parametrize("name", [n for n in READY if n not in ("rail_only", "fat_tree_k8", "fat_tree_k16", "leaf_spine")])
def test_ready_files_take_other_sizes(name: str) -> None:
    for nodes in (1, 2, 16, 200):
        assert report(load_section(name, Fabric, [f"nodes={nodes}"])).nodes == nodes


THREE_TO_ONE = {"rails": 24, "rails_shared": 12, "rails_3_tiers": 48, "rails_3_tiers_shared": 24, "single_tor": 12, "leaf_spine": 48}
"""Nodes that fill whole leaves in both halves when leaves have 6 of 8 ports down."""


@pytest.mark.parametrize("name", [*THREE_TO_ONE, "fat_tree"])
def test_maximum_flow_agrees_with_the_thinnest_tier(name: str) -> None:
    topology = topologies.build(FABRICS[name])
    assert bisection(topology) == tier_bisection(topology) == topology.n_nics / 2 * 50e9
    if name in THREE_TO_ONE:
        topology = topologies.build(replace(FABRICS[name], nodes=THREE_TO_ONE[name], leaf=Tier(oversubscription=3)))
        assert bisection(topology) == pytest.approx(tier_bisection(topology)) == topology.n_nics / 6 * 50e9


def test_oversubscription_and_bisection_by_hand() -> None:
    """Leaves of 8 ports at 3:1: 6 down, 2 up; 24 hosts on 4 leaves, 8 ports up to 1 spine: 4 of 12 hosts get across at full rate."""
    figures = report(Fabric(builder="leaf_spine", nodes=24, gpus_per_node=1, switch=Switch(radix=8), leaf=Tier(oversubscription=3)))
    leaf, spine = figures.tiers
    assert (leaf.switches, leaf.ports_used, leaf.ports_free, leaf.oversubscription) == (4, 32, 0, 3.0)
    assert (spine.switches, spine.ports_used, spine.oversubscription) == (1, 8, None)
    assert figures.bisection_bytes_per_s == 4 * 50e9 and figures.full_bisection_bytes_per_s == 12 * 50e9


def test_paths_and_planes_of_a_fat_tree() -> None:
    figures = report(load_section("fat_tree_k8", Fabric))
    assert [(p.across, p.links, p.latency_ps) for p in figures.paths] == [
        ("leaf", 2, 1_300_000), ("spine", 4, 2_900_000), ("core", 6, 4_500_000),
    ]  # fmt: skip
    assert (figures.diameter_links, figures.unreachable_nic_pairs, figures.planes, figures.switch_planes) == (6, 0, 1, 1)


def test_planes_apart() -> None:
    rails = report(FABRICS["rails"])
    # 4 rails of 16 NICs
    assert (rails.planes, rails.switch_planes, rails.unreachable_nic_pairs) == (4, 4, 64 * 48)
    dual = report(FABRICS["dual_plane"])
    assert (dual.planes, dual.switch_planes, dual.nic_ports) == (2, 4, 32)


def test_faults_show() -> None:
    fabric = Fabric(nodes=64, spines="shared", faults=(Fault("leaf r0.s0 -> spine 0"), Fault("leaf r0.s0 -> spine 1 (0)", rate=25e9)))
    figures = report(fabric)
    # 16 leaves x 32 up on 8 spines: 4 parallel cables, both directions
    assert (figures.failed_links, figures.slow_links) == (8, 2)
    assert figures.bisection_bytes_per_s == (256 - 4.5) * 50e9


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["topo", "dgx_h100", "--json", "--set", "nodes=16"]) == 0
    printed = capsys.readouterr().out.splitlines()
    document = json.loads(printed[-1])
    assert document["gpus"] == 128 and document["tiers"][0]["switches"] == 8
    assert printed[0].split() == ["tier", "switches", "radix", "ports", "used", "free", "down", "up", "oversubscription"]
    file = tmp_path / "mine.yaml"
    file.write_text("use: dgx_h100\nnodes: 64\nfaults:\n  - {link: leaf r3.s0 -> spine r3.0 (1), rate: 0, from: 1 ms, until: 2 ms}\n")
    fabric = topo.fabric_of(str(file), ["topology.link.rate=200 Gbps"])
    assert fabric.link.rate == 25e9 and fabric.faults[0].from_ == 10**9
    assert main(["topo", str(file)]) == 0
    file.write_text("use: dgx_h100\nnodes: 4096\nleaf: {radix: 0}\nspins: shared\n")
    assert main(["topo", str(file)]) == 2
    assert f"{file}:4:1: topology.spins: expected a known key" in capsys.readouterr().err


def test_what_people_ask_for_in_vain() -> None:
    with pytest.raises(InputError, match="dgx_h10: expected"):
        topo.fabric_of("dgx_h10", [])
