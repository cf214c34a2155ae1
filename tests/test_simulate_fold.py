"""Folding changes nothing: two interleaved stages, whose pairs face each other both ways, are the case that looks alike and is not."""

import pytest

from netsim.config.load import from_data
from netsim.simulate.model import build
from netsim.validate.run import execute


@pytest.mark.parametrize("faults", [[], [{"link": "scale-up n0.1 -> scale-up n0.0", "rate": "9 GB/s", "both_ways": False}]])
@pytest.mark.parametrize("parallel", [{"tp": 2}, {"tp": 4}, {"pp": 2}])
def test_islands_folded_and_whole(parallel: dict[str, int], faults: list[dict[str, object]]) -> None:
    found = []
    for fold in ("auto", "off"):
        run = from_data(
            {
                "name": "fold",
                "topology": {"use": "a100_pcie", "nodes": 1, "segment": 1, "faults": faults},
                "simulate": {"fold": fold},
                "compute": {"device": {"use": "a100_pcie"}},
                "workload": {
                    "kind": "training", "model": {"use": "llama3_8b", "layers": 4}, "sequence": 1024, "global_batch": 16, "micro_batch": 1,
                    "parallel": parallel,
                },
            }
        )  # fmt: skip
        model = build(run)
        summary = execute(run, model)
        found.append((summary["iteration_time_s"], summary["scale_up_bytes"], len(model.program)))
    (folded, moved, few), (whole, all_moved, all_gpus) = found
    assert folded == pytest.approx(whole, rel=1e-12) and moved == pytest.approx(all_moved, rel=1e-12) and few <= all_gpus == 8
    assert few < 8 or faults


@pytest.mark.parametrize(("pp", "vpp"), [(2, 2), (2, 4), (4, 2)])
def test_interleaved_stages_folded_and_whole(pp: int, vpp: int) -> None:
    times = []
    for fold in ("auto", "off"):
        run = from_data(
            {
                "name": "fold",
                "topology": {"use": "dgx_h100", "nodes": 1},
                "simulate": {"fold": fold},
                "compute": {"device": {"use": "h100"}},
                "workload": {
                    "kind": "training", "model": {"use": "llama3_8b", "layers": 8}, "sequence": 1024, "global_batch": 16, "micro_batch": 1,
                    "parallel": {"pp": pp, "vpp": vpp},
                },
            }
        )  # fmt: skip
        model = build(run)
        times.append((execute(run, model)["iteration_time_s"], len(model.program)))
    (folded, few), (whole, all_gpus) = times
    assert folded == pytest.approx(whole, rel=1e-12) and few < all_gpus == 8
