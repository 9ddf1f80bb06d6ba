"""Early stopping: whether a run is done before its last round, by the metrics of its global models."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.control.run_settings import RunSettings
from moonfed.registry import Value

LOWER_IS_BETTER = ("loss", "error")  # ends of metrics' names
ACCURACY = "accuracy"  # the evaluator's; the mean of devices' holdouts is a claim, which one device could inflate


def is_done(settings: RunSettings, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return why a run needs no more rounds; empty if it does. `metrics`: of its global models, by round and name."""
    return _reached(settings.target_metrics, metrics) or _stalled(settings.stop_after, metrics)


def _reached(targets: Mapping[str, Value], metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return which model reached all targets; empty if none has."""
    for round_, found in sorted(metrics.items()) if targets else ():
        if all(name in found and _reaches(name, found[name], float(limit)) for name, limit in targets.items()):
            return f"global model {round_} has reached {', '.join(f'{name} {found[name]:.4g}' for name in targets)}"
    return ""


def _reaches(name: str, value: float, limit: float) -> bool:
    metric = name.partition("@")[0]  # which a test set's name may follow
    return value <= limit if metric.endswith(LOWER_IS_BETTER) else value >= limit


def _stalled(patience: int, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return since when no evaluated model was more accurate, if that is for `patience` of them; 0: never."""
    scores = {round_: found[ACCURACY] for round_, found in sorted(metrics.items()) if ACCURACY in found}
    if not patience or not scores:
        return ""
    best = max(scores, key=lambda round_: (scores[round_], -round_))
    if sum(round_ > best for round_ in scores) < patience:
        return ""
    return f"accuracy has not exceeded {scores[best]:.4g}, of global model {best}, for {patience} evaluated models"
