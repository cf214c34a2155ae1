"""Progress: silent, as a log with the time that is left, or as a bar."""

import pytest

from netsim import progress


def test_log_lines_come_every_few_seconds_with_the_time_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 5.0, 6.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Log() as shown:
        for fraction in (0.05, 0.25, 0.3, 0.5):
            shown.update(fraction, "work")
    assert capsys.readouterr().err == " 25.0 %  0:05, 0:15 left  work\n 50.0 %  0:20, 0:21 left  work\n"


def test_what_holds_work_up_is_said_once_and_does_not_count_as_its_pace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 100.0, 101.0, 110.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Log() as shown:
        shown.note("compiling")
        shown.note("compiling")
        for fraction in (0.01, 0.02, 0.11):
            shown.update(fraction, "work")
    assert capsys.readouterr().err == "compiling\n  1.0 %  1:40  work\n 11.0 %  1:50, 1:29 left  work\n"


def test_a_kernel_that_must_be_compiled_is_announced() -> None:
    from numba import njit

    from netsim.kernels.jit import announced

    told: list[int] = []

    def double(x: int) -> int:
        return 2 * x

    compiled = njit(double)
    with announced(lambda: told.append(1)):
        assert compiled(2) == 4 and told == [1]
        assert compiled(3) == 6 and told == [1], "what is compiled is not announced again"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(quiet=True) as shown:
        shown.update(0.5, "work")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_elsewhere_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, kind in ((True, progress.Bar), (False, progress.Log)):
        monkeypatch.setattr(progress.sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert type(progress.progress(quiet=False)) is kind


def test_bar_accepts_what_a_run_reports() -> None:
    with progress.Bar() as shown:
        for step in range(5):
            shown.update(step / 4, "simulated 1 ms [not a markup]")
        assert shown._bar.tasks[0].completed == 1.0, "the last report is always shown"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65, "1:05"), (3725, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert progress.clock(seconds) == text
