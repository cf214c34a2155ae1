"""Speed: what is measured can be simulated, and the projection to more ranks by hand. The measuring itself takes minutes."""

import pytest

from netsim.bench import flow, scaling
from netsim.config import load
from netsim.network.partition import STRETCH

ONE = {"wall_s": 100.0, "parallel": {"played_s": 80.0, "windows": 1000}}
MANY = {"parallel": {"sets": 4, "most_ranks": 16, "hand_over_s": 1e-5, "exchanges": 1000}}


@pytest.mark.parametrize("name", scaling.RUNS)
def test_runs_that_are_measured_load(name: str) -> None:
    file, *settings = scaling.RUNS[name]
    assert load(file, settings).network.engine == "packet"


@pytest.mark.parametrize("name", flow.CASES)
def test_cases_of_the_flow_engine_use_all_gpus(name: str) -> None:
    gpus, dp, _ = flow.CASES[name]
    parallel = load("runs/h100_1024.yaml", ()).workload.parallel
    assert gpus == dp * parallel.tp * parallel.pp


@pytest.mark.parametrize(
    ("ranks", "played", "steps"),
    [
        (1, 80, 0),
        (2, 40, 1),  # two of the four sets each
        (4, 20, 2),
        (8, min(20, STRETCH * (10 + 1000 * 1e-5)), 3),  # two ranks share a set and hand over in each window
        (128, min(20, STRETCH * (5 + 1000 * (1e-5 + scaling.STEP_S))), 7),  # four do, the other ranks find no work; one step more
    ],
)
def test_projection_by_hand(ranks: int, played: float, steps: int) -> None:
    assert scaling.project(ONE, MANY, ranks) == pytest.approx(20 + played + 1000 * steps * scaling.STEP_S)


def test_what_cannot_be_cut_is_not_projected_to_be() -> None:
    whole = {"parallel": MANY["parallel"] | {"hand_over_s": 0.0}}
    assert scaling.project(ONE, whole, 128) == pytest.approx(20 + 20 + 1000 * 7 * scaling.STEP_S)


def test_the_table_has_a_row_for_each_run() -> None:
    measured = {
        "cores": 2, "wall_s_1": 10.0, "wall_s_2": 5.0, "wall_s_32": 6.0, "speedup": 2.0, "oversubscribed": 1.2, "parallel_exchanges": 7,
        "parallel_hand_overs": 0, "parallel_imbalance": 1.0625, "parallel_most_ranks": 8,
    } | {f"projected_s_{n}": 10 / n for n in scaling.RANKS}  # fmt: skip
    lines = scaling.section({"scaling_one": measured, "scaling_two": measured}).splitlines()
    assert "| one | 10 | 5 | 2 | 6 | 1.2 | 7 | 0 | 1.06 |" in lines and "| two | 5 | 1.25 | 0.312 | 0.0781 | 8 |" in lines
    assert len({line.count("|") for line in lines[:4]}) == 1 and len({line.count("|") for line in lines[5:]}) == 1
