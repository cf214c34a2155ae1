"""Points are done again when what they were made with has changed."""

from pathlib import Path

import pytest

from netsim.config import load
from netsim.study import fingerprint as made
from netsim.study.cost import listed


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A model of two files in place of the real one."""
    paths = [tmp_path / "kernel.py", tmp_path / "table.csv"]
    for path in paths:
        path.write_text("one")
    monkeypatch.setattr(made, "_files", lambda: [(path.name, path) for path in paths])
    made.fingerprint.cache_clear()
    yield paths
    made.fingerprint.cache_clear()


def test_key_depends_on_code_and_data(files):
    run = load("runs/h100_16.yaml", ())
    keys = [made.key_of(run)]
    for path in files:
        path.write_text("two")
        made.fingerprint.cache_clear()
        keys.append(made.key_of(run))
    keys.append(made.key_of(run, "other prices"))
    assert len(set(keys)) == 4


def test_fingerprint_is_of_model_and_tables_and_not_of_reports():
    names = {name for name, _ in made._files()}
    assert {"kernels/executor.py", "study/prices.yaml", "metrics.py", "cost.py"} <= names | {f"study/{n}" for n in names}
    assert any(name.startswith("compute/tables/") for name in names) and any(name.startswith("workload/models/") for name in names)
    assert not any("report" in Path(name).parts[:1] or "cli" in Path(name).parts[:1] for name in names)


def test_prices_without_source_are_marked():
    assert listed()["nic_400"].assumed and listed()["load"].assumed
    assert not listed()["gpu_hopper"].assumed and not listed()["switch_port_400"].assumed
    assert all(price.source for price in listed().values())
