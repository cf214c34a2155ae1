"""Loading: units, defaults, ready files, overrides, other names; and that what is resolved loads again to the same run."""

import dataclasses
import json
import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.config import config_hash, dump, fields, from_data, load, load_section, resolved
from netsim.config.compute import DeviceCard
from netsim.config.run import Run
from netsim.config.source import parse
from netsim.config.topology import Fabric
from netsim.config.use import merge
from netsim.errors import InputError

BASE = Path(__file__).parent / "golden" / "base.yaml"


def test_units_become_integers_and_rates() -> None:
    run = load(BASE)
    assert run.topology.link.rate == 50e9
    assert run.topology.link.latency == 500_000
    assert run.topology.switch.buffer == 64 * 2**20
    assert run.telemetry.interval == 100_000_000
    assert run.slurm.time == 1800 * 10**12


def test_a_run_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(BASE).seed = 1  # type: ignore[misc]


def test_name_is_the_files_where_it_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "h100_small.yaml"
    file.write_text(BASE.read_text().replace("name: sample\n", ""))
    assert load(file).name == "h100_small"


def test_ready_file_and_keys_beside_it() -> None:
    device, card = load(BASE).compute.device, load_section("h100", DeviceCard)  # type: ignore[union-attr]
    assert device.hbm_efficiency == 0.8 != card.hbm_efficiency
    assert dataclasses.replace(device, hbm_efficiency=card.hbm_efficiency) == card


def test_override_takes_another_ready_file() -> None:
    device = load(BASE, ["compute.device.use=a100", "compute.device.nvlink=1 GB/s"]).compute.device  # type: ignore[union-attr]
    assert device == dataclasses.replace(load_section("a100", DeviceCard), hbm_efficiency=0.8, nvlink=1e9)


def test_path_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "fabrics").mkdir()
    (tmp_path / "fabrics" / "outer.yaml").write_text("use: ./inner.yaml\nnodes: 4\n")
    (tmp_path / "fabrics" / "inner.yaml").write_text("nodes: 3\ngpus_per_node: 4\n")
    (tmp_path / "run.yaml").write_text(BASE.read_text().replace("  builder: rail_optimised\n  nodes: 2\n", "  use: fabrics/outer.yaml\n"))
    fabric = load(tmp_path / "run.yaml", ["simulate.slow_gpus=[]"]).topology
    assert (fabric.nodes, fabric.gpus_per_node, fabric.link.latency) == (4, 4, 500_000)


def test_a_run_may_use_another(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE.read_text())
    (tmp_path / "more.yaml").write_text("use: base.yaml\nname: more\nworkload:\n  global_batch: 64\n")
    assert load(tmp_path / "more.yaml") == load(tmp_path / "base.yaml", ["name=more", "workload.global_batch=64"])


def test_section_from_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text("nodes: 16\nlink: {rate: 200 Gbps}\n")
    fabric = load_section(tmp_path / "fabric.yaml", Fabric, ["link.latency=1 us"])
    assert (fabric.nodes, fabric.link.rate, fabric.link.latency) == (16, 25e9, 1_000_000)


def test_unknown_ready_section_offers_a_known_one() -> None:
    with pytest.raises(InputError, match=r"in compute/devices, or a path; got 'h10'; did you mean 'h100'\?"):
        load_section("h10", DeviceCard)


def test_section_error_names_field_and_place(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text("nodes: -1\n")
    with pytest.raises(InputError, match=r"fabric.yaml:1:1: topology.nodes: expected a whole number of at least 1; got -1"):
        load_section(tmp_path / "fabric.yaml", Fabric)


def test_overrides_apply_in_order_and_reach_into_lists() -> None:
    run = load(BASE, ["seed=1", "seed=2", "simulate.slow_gpus.0.factor=3", "telemetry.operations=[0, 8]", "topology.spine.radix=32"])
    assert (run.seed, run.simulate.slow_gpus[0].factor, run.telemetry.operations, run.topology.spine.radix) == (2, 3.0, (0, 8), 32)


def test_override_by_null_takes_a_value_away() -> None:
    assert load(BASE, ["network.ecn=null"]).network.ecn is None


def test_megatrons_names_merge_with_ours(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text("name: m\nnum_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nffn: 256\nvocab_size: 1000\n")
    text = yaml.safe_load(BASE.read_text())
    text["workload"]["model"] = {"use": "./card.yaml", "num_layers": 8, "vocab": 500}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(text))
    model = load(tmp_path / "run.yaml", ["workload.model.ffn_hidden_size=128"]).workload.model  # type: ignore[union-attr]
    assert (model.layers, model.hidden, model.heads, model.ffn, model.vocab) == (8, 64, 4, 128, 500)


def test_scalars_follow_yaml_1_2() -> None:
    data = parse("[off, no, 12:30, 1e-3, 1_000, 0x10, ~, true, '1', 2001-01-01, .5]", "x").data
    assert data == ["off", "no", "12:30", 1e-3, 1000, 16, None, True, "1", "2001-01-01", 0.5]


def test_dump_loads_again(tmp_path: Path) -> None:
    run = load(BASE, ["topology.faults=[{link: leaf r0.s0 -> nic n0.0, from: 1 us, rate: 50 Gbps}]"])
    (tmp_path / "again.yaml").write_text(dump(run))
    assert load(tmp_path / "again.yaml") == run
    assert pickle.loads(pickle.dumps(run)) == run


def test_configuration_survives_json() -> None:
    run = load(BASE, ["network.congestion_control.parameters={a: 1.5}", "telemetry.operations=[1, 2]"])
    assert from_data(json.loads(json.dumps(resolved(run)))) == run


def test_hash_sees_every_field_and_no_order() -> None:
    run = load(BASE)
    data = resolved(run)
    assert config_hash(from_data(dict(reversed(data.items())))) == config_hash(run)
    assert config_hash(load(BASE, ["topology.link.latency=501 ns"])) != config_hash(run)
    assert config_hash(load(BASE, ["workload.parallel.pp=2"])) != config_hash(run)


times = st.integers(0, 2**53) | st.integers(0, 10**6).map(lambda us: us * 10**6)
rates = st.floats(1, 1e15) | st.integers(1, 6400).map(lambda gbps: gbps * 1e9 / 8)


@settings(max_examples=300, deadline=None)
@given(times, st.integers(0, 2**61), rates, rates)
def test_quantities_are_written_so_that_they_parse_to_the_same_value(t: int, size: int, rate: float, flops: float) -> None:
    assert fields.units.parse_time(fields.write_time(t)) == t
    assert fields.units.parse_size(fields.write_size(size)) == size
    assert fields.units.parse_rate(fields.write_rate(rate)) == rate
    assert fields.units.parse_flops(fields.write_flops(flops)) == flops


overrides = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**31).map(str),
        "topology.link.rate": st.integers(1, 10**6).map(lambda m: f"{m} Mbps"),
        "topology.spine.cable": st.integers(1, 10**9).map(lambda ps: f"{ps} ps"),
        "topology.switch.buffer": st.integers(0, 2**40).map(str),
        "topology.leaf.oversubscription": st.floats(0.01, 100).map(repr),
        "workload.parallel.tp": st.integers(1, 64).map(str),
        "workload.recompute.granularity": st.sampled_from(["none", "full", "selective"]),
        "network.ecn": st.sampled_from(["null", "{}", "{kmin: 1 KiB}"]),
        "network.congestion_control.parameters": st.dictionaries(st.sampled_from("ab"), st.floats(0, 9)).map(repr),
        "simulate.max_wall": st.sampled_from(["null", "1.5 h", "90 s"]),
        "telemetry.operations": st.sampled_from(["all", "representative", "[]", "[1, 2]"]),
        "nccl.NCCL_BUFFSIZE": st.integers(16384, 2**26).map(str),
    },
)


@settings(max_examples=60, deadline=None)
@given(overrides)
def test_what_is_resolved_loads_again_to_an_equal_run(chosen: dict[str, str]) -> None:
    run = load(BASE, [f"{name}={value}" for name, value in chosen.items()])
    again = from_data(resolved(run))
    assert again == run
    assert resolved(again) == resolved(run) == yaml.safe_load(dump(run))
    assert config_hash(again) == config_hash(run)


trees = st.recursive(st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)


@given(trees, trees)
def test_merge_keeps_what_only_one_side_has(base: object, over: object) -> None:
    merged = merge(base, over)
    assert merge(merged, over) == merged
    if isinstance(base, dict) and isinstance(over, dict):
        assert isinstance(merged, dict)
        assert set(merged) == set(base) | set(over)
        assert all(merged[key] == base[key] for key in set(base) - set(over))
    else:
        assert merged == over


def test_every_section_has_a_docstring_and_defaults_that_are_valid() -> None:
    from netsim.config.explain import rows, section

    def below(name: str) -> list[str]:
        inner = [row["field"] for cls in section(name) for row in rows(cls) if row["takes"].startswith("section")]
        return [name, *(deep for field in inner for deep in below(f"{name}.{field}".lstrip(".")))]

    for name in below(""):
        for cls in section(name):
            assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), name
    assert isinstance(from_data(resolved(load(BASE))), Run)
