"""What is said about wrong input, word for word, and that nothing else happens."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from netsim.config import from_data, load, places, resolved
from netsim.config.shape import value_at
from netsim.errors import InputError

GOLDEN = Path(__file__).parent / "golden" / "wrong_input.yaml"
BASE = GOLDEN.with_name("base.yaml").read_text()
CASES: list[dict[str, Any]] = yaml.safe_load(GOLDEN.read_text())
SAYS = GOLDEN.with_suffix(".txt")


def said(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    text = BASE
    for old, new in case.get("edit", {}).items():
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in base.yaml"
        text = text.replace(old, new)
    monkeypatch.chdir(folder)
    Path("run.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load("run.yaml", case.get("set", ()))
    return caught.value.lines


def test_base_is_sound() -> None:
    assert load(GOLDEN.with_name("base.yaml")).name == "sample"


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bless: bool) -> None:
    now = "\n".join(line for case in CASES for line in ["== " + case["case"], *said(case, tmp_path, monkeypatch), ""])
    if bless:
        SAYS.write_text(now)
    assert now == SAYS.read_text()


@pytest.mark.parametrize("case", CASES, ids=[c["case"] for c in CASES])
def test_every_line_names_a_place_or_the_override(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in said(case, tmp_path, monkeypatch):
        assert line.startswith(("run.yaml:", "--set ")), line
        assert "expected " in line and "; got " in line, line
        assert "\n" not in line


def paths_in(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path for key, value in inner for path in [(*above, key), *paths_in(value, (*above, key))]]


TREE = yaml.safe_load(BASE)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["400 Gbps", "auto", "1 us", "h100", "", "x" * 50])
keys = st.sampled_from(["use", "kind", "rate", "gpu", 3])
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(paths_in(TREE)), anything, min_size=1, max_size=3))
def test_whatever_stands_in_a_file_is_a_run_or_a_list_of_lines(changes: dict[tuple[Any, ...], Any]) -> None:
    data = copy.deepcopy(TREE)
    for path, value in changes.items():
        holder = value_at(data, path[:-1])
        if isinstance(holder, dict):
            holder[path[-1]] = copy.deepcopy(value)
    try:
        run = from_data(data)
    except InputError as error:
        assert error.lines
        for line in error.lines:
            assert "expected " in line and "; got " in line and "\n" not in line, line
    else:
        assert from_data(resolved(run)) == run


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (None, "expected a YAML file; got no such file"),
        (b"\xff\xfe\x00", "expected text in UTF-8"),
        (b"- 1\n- 2\n", "expected a mapping of keys to values; got a list"),
        (b"", "topology: expected a section"),
        (b"a: &a [*a]\n", "got an alias that contains itself"),
        (b"a: 1\n---\nb: 2\n", "expected one document; got several"),
    ],
    ids=["missing", "binary", "list", "empty", "endless", "two documents"],
)
def test_file_that_is_no_run(content: bytes | None, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(file)
    assert any(rule in line for line in caught.value.lines), caught.value.lines
    assert all(line.startswith(str(file)) for line in caught.value.lines)


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a file that can be read; got: is a directory"):
        load(tmp_path)


def test_similar_file_is_offered(tmp_path: Path) -> None:
    (tmp_path / "h100_1024.yaml").write_text("")
    with pytest.raises(InputError, match=r"did you mean '.*/h100_1024.yaml'"):
        load(tmp_path / "h100_1204.yaml")


def test_mistake_in_a_used_file_names_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fabric.yaml").write_text("nodes: 2\nlink:\n  rate: 400 Gbs\n")
    Path("run.yaml").write_text(BASE.replace("  link:\n    rate: 400 Gbps\n    latency: 500 ns\n", "  use: ./fabric.yaml\n"))
    with pytest.raises(InputError) as caught:
        load("run.yaml")
    assert caught.value.lines == ["fabric.yaml:3:3: topology.link.rate: expected a rate such as '400 Gbps'; got '400 Gbs'"]


def test_files_that_use_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("use: ./b.yaml\n")
    Path("b.yaml").write_text("use: ./a.yaml\n")
    Path("run.yaml").write_text(BASE.replace("  builder: rail_optimised\n", "  use: ./a.yaml\n"))
    with pytest.raises(InputError, match=r"expected a chain of files that ends; got './a.yaml' again"):
        load("run.yaml")


def test_rules_checked_later_name_the_place() -> None:
    file = GOLDEN.with_name("base.yaml")
    run = load(file, ["workload.parallel.pp=3"])
    with pytest.raises(InputError) as caught, places(run):
        raise InputError(["topology.nodes: expected 4; got 2", "workload.parallel.pp: expected 2; got 3", "/some/file: expected more"])
    assert caught.value.lines == [
        f"{file}:6:3: topology.nodes: expected 4; got 2",
        "--set workload.parallel.pp: expected 2; got 3",
        "/some/file: expected more",
    ]
