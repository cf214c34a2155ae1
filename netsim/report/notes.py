"""What a reader must know of a run before he trusts a figure of it."""

from netsim.telemetry.read import RunFile
from netsim.units import format_time, parse_time


def of(run: RunFile) -> list[str]:
    """Sentences, none for a run like any other."""
    out = []
    if not run.complete:
        out.append(f"INCOMPLETE: the run was stopped or killed at {format_time(run.end_ps)} of simulated time; figures are up to there")
    asked = parse_time(run.config["telemetry"]["interval"])
    if run.interval_ps and run.interval_ps != asked:
        out.append(f"series are in intervals of {format_time(run.interval_ps)}, not {format_time(asked)}: they would not have fitted")
    return out
