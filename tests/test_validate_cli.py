"""`netsim validate` as a user calls it, on tables whose rows cannot run (so that nothing is simulated) and on wrong input."""

import json
from pathlib import Path

HEAD = "model,gpu_family,num_gpus,tp,pp,mbs,gbs,seq,precision,step_time_s,source\n"
ROWS = "Nemotron-H 56b,H100,32,8,1,1,96,8192,fp8,15.1,a\nLlama 3.1 8b,V100,8,1,1,1,8,8192,bf16,9,b\n"


def test_rows_that_cannot_run_are_named_with_their_reason(netsim, tmp_path: Path) -> None:
    table, out = tmp_path / "mine.csv", tmp_path / "out.json"
    table.write_text(HEAD + ROWS)
    done = netsim("validate", "--data", table, "--json", out, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "mine.csv:2" in done.stdout and "Mamba" in done.stdout and "no device card for V100" in done.stdout
    document = json.loads(out.read_text())
    assert set(document) >= {"overall", "groups", "rows"} and document["overall"]["rows"] == 2 and document["overall"]["ran"] == 0
    assert set(document["rows"][0]) >= {"source", "predicted", "measured", "error", "assumed", "skipped"}


def test_wrong_input_is_one_line_and_exit_code_2(netsim, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(HEAD + ROWS)
    other = tmp_path / "other.csv"
    other.write_bytes(b"model\xf5\n")
    for words, said in (
        (("--data", tmp_path / "none.csv"), "got nothing there"),
        (("--data", table, "--filter", "num_gpu=8"), "num_gpus"),
        (("--data", table, "--filter", "num_gpus>4000"), "at least one row"),
        (("--data", table, "--only", "memory"), "kind memory"),
        (("--data", table, "--jobs", "0"), "--jobs"),
        (("--data", other), "other.csv: expected text in UTF-8; got other bytes"),
        (("--data", table, "--only", "network", "--page", "page.md"), "--page: expected it with --only training; got --only network"),
        (("--data", table, "--json", tmp_path), "expected a file in a folder that exists; got a folder"),
        (("--data", table, "--page", "none/page.md"), "none/page.md: expected a file in a folder that exists; got no such folder"),
    ):
        done = netsim("validate", *words)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, (words, done.stderr)


def test_effects_of_the_network(netsim, tmp_path: Path) -> None:
    table = tmp_path / "network.csv"
    table.write_text(
        "category,metric,hardware,value,unit,kind,source\n"
        'NVLS,"all_reduce busbw 8 GiB, NVLS off","H200, 8 GPUs",365.6,GB/s,measured,a\n'
        "latency,something else,H200,1,us,measured,a\n"
    )
    out = tmp_path / "out.json"
    done = netsim("validate", "--data", table, "--only", "network", "--json", out)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert document["overall"]["ran"] == 1 and abs(document["rows"][0]["error"]) < 0.1 and document["rows"][1]["skipped"]
