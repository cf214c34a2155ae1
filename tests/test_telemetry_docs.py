"""docs/telemetry.md: its examples run, its table is the declaration table, its pictures are there."""

import re
from pathlib import Path

import pytest

from netsim.telemetry.channels import CHANNELS
from tests.telemetry_runs import simulated

PAGE = Path(__file__).resolve().parent.parent / "docs" / "telemetry.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    simulated(folder / "results" / "h100_1024")
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example, results, monkeypatch, capsys):
    for package in ("pandas", "xarray"):
        if f"run.{package}" in example:
            pytest.importorskip(package)
    monkeypatch.chdir(results)
    exec(example, {})
    assert len(capsys.readouterr().out) > 10
    assert example.count("\n") <= 10


def test_table_is_the_declaration_table():
    rows = {row[0]: row[1:] for row in re.findall(r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", TEXT, re.MULTILINE)}
    assert rows == {c.path: (", ".join(c.axes), c.unit or "-", c.choice or "always", c.meaning) for c in CHANNELS}


def test_pictures_are_there():
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", TEXT)
    assert len(pictures) == 9
    assert all((PAGE.parent / picture).stat().st_size > 5000 for picture in pictures)
