"""The examples of docs/workload.md, run as they stand there."""

import re
from pathlib import Path

import pytest

import workload
from netsim.errors import InputError
from tests.workload_cases import TINY, build, replay, training

BASE = {"kind": "training", "model": TINY, "sequence": 256, "global_batch": 16}
MOE = {**TINY, "experts": 8, "top_k": 2, "expert_ffn": 512}
PAGE = Path(__file__).parent.parent / "docs" / "workload.md"


@pytest.fixture
def examples(tmp_path):
    """Paths of the Python examples by name."""
    found = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        name = re.match(r"# (\w+\.py)", code)[1]
        (tmp_path / name).write_text(code)
        found[name] = str(tmp_path / name)
    return found


def test_operation(monkeypatch, examples):
    plain, more = (build(monkeypatch, training(BASE, model={**TINY, "blocks": b}), 2) for b in ([], [examples["adapter.py"]]))
    extra = 8 * 2 * 64 * 512
    assert more.memory[0].weights - plain.memory[0].weights == 2 * extra
    assert more.memory[0].activations - plain.memory[0].activations == 8 * 2 * 256 * (512 + 64)
    grads = [workload.tally(w, 0)["dp", "dp.reduce_scatter.dense_grads"].nbytes for w in (plain, more)]
    assert grads[1] - grads[0] == 4 * extra
    assert any("adapter" in name for name in more.segments.name)


def test_schedule(monkeypatch, examples):
    section = training(BASE, parallel={"pp": 4}, pipeline={"schedule": examples["eager.py"]})
    work = build(monkeypatch, section, 4)
    assert replay(work, lambda call: 1_000_000)[0] > 0
    plain = build(monkeypatch, training(BASE, parallel={"pp": 4}), 4)
    assert work.memory[0].activations > plain.memory[0].activations


def test_dispatcher(monkeypatch, examples):
    section = training(BASE, model=MOE, parallel={"ep": 4}, experts={"dispatcher": examples["halved.py"]})
    work = build(monkeypatch, section, 4)
    assert replay(work)[0] > 0
    count = workload.tally(work, 0)["ep", "ep.all_to_all.dispatch"]
    assert count.nbytes == count.ops * 256 * 2 * 512


def test_missing_file(monkeypatch):
    with pytest.raises(InputError, match=r"nowhere\.py: expected a Python file with a schedule; there is none"):
        build(monkeypatch, training(BASE, pipeline={"schedule": "nowhere.py"}), 2)
    with pytest.raises(InputError, match=r"zb_h2: expected one of the schedules .*did you mean 'zb_h1'"):
        build(monkeypatch, training(BASE, pipeline={"schedule": "zb_h2"}), 2)
