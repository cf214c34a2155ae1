"""Continuous knobs by Bayesian optimisation: optuna's multi-objective tree-structured Parzen estimator over simulations."""

from collections.abc import Callable
from typing import Any, NamedTuple

from netsim.config.search import Knob
from netsim.errors import InputError


class Trial(NamedTuple):
    """Values of the knobs in their order, and the objectives; empty where the simulation gave none."""

    knobs: tuple[float, ...]
    objectives: tuple[float, ...]


def optimise(
    knobs: tuple[Knob, ...], trials: int, objectives: int, seed: int, simulate: Callable[[dict[str, float]], tuple[float, ...]]
) -> list[Trial]:
    """Try the knobs `trials` times and return all that was tried, in order; `simulate` answers with less-is-better objectives, () for none.

    The same seed tries the same values. Raises InputError without optuna.
    """
    try:
        import optuna
    except ImportError:
        raise InputError("knobs need optuna: pip install 'netsim-llm[study]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(4, trials // 4))
    study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
    tried = []
    for _ in range(trials):
        trial = study.ask()
        values = {knob.field: _suggest(trial, knob) for knob in knobs}
        found = simulate(values)
        if found:
            study.tell(trial, list(found))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        tried.append(Trial(tuple(values.values()), found))
    return tried


def _suggest(trial: Any, knob: Knob) -> float:
    if knob.whole:
        return int(trial.suggest_int(knob.field, round(knob.low), round(knob.high), log=knob.log))
    return float(trial.suggest_float(knob.field, knob.low, knob.high, log=knob.log))


def best(tried: list[Trial]) -> list[Trial]:
    """Trials that no other beats in one objective without losing in another; of those that give the same, the first."""
    known = list({t.objectives: t for t in reversed(tried) if t.objectives}.values())[::-1]

    def beats(a: Trial, b: Trial) -> bool:
        return a is not b and all(x <= y for x, y in zip(a.objectives, b.objectives, strict=True))

    return [t for t in known if not any(beats(other, t) for other in known)]
