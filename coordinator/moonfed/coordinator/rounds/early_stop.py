"""Early stopping: whether a run is done before its last round, by the metrics of its global models."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.bundle.manifest import Metric
from moonfed.control.run_settings import RunSettings
from moonfed.registry import Value
from moonfed.tasks.figure import is_lower_better


def is_done(settings: RunSettings, metric: Metric, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return why a run needs no more rounds; empty if it does.

    `metric`: by which its models are compared. `metrics`: of its global models, by round and name.
    """
    return _reached(settings.target_metrics, metric, metrics) or _stalled(settings.stop_after, metric, metrics)


def _reached(targets: Mapping[str, Value], metric: Metric, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return which model reached all targets; empty if none has."""
    for round_, found in sorted(metrics.items()) if targets else ():
        if all(name in found and _reaches(name, metric, found[name], float(limit)) for name, limit in targets.items()):
            return f"global model {round_} has reached {', '.join(f'{name} {found[name]:.4g}' for name in targets)}"
    return ""


def _reaches(name: str, metric: Metric, value: float, limit: float) -> bool:
    return value >= limit if _is_maximised(name.partition("@")[0], metric) else value <= limit


def _is_maximised(name: str, metric: Metric) -> bool:
    """Tell the direction of a metric by its name, which may follow that of what it was measured on."""
    if name in (metric.name, f"holdout_{metric.name}"):
        return metric.maximise
    return not is_lower_better(name)


def _stalled(patience: int, metric: Metric, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """Return since when no evaluated model was better, if that is for `patience` of them; 0: never.

    The metric is the evaluator's: the mean of devices' holdouts is a claim, which one device could inflate.
    """
    sign = 1 if metric.maximise else -1
    scores = {round_: sign * found[metric.name] for round_, found in sorted(metrics.items()) if metric.name in found}
    if not patience or not scores:
        return ""
    best = max(scores, key=lambda round_: (scores[round_], -round_))
    if sum(round_ > best for round_ in scores) < patience:
        return ""
    value = f"{'exceeded' if metric.maximise else 'fallen below'} {sign * scores[best]:.4g}"
    return f"{metric.name} has not {value}, of global model {best}, for {patience} evaluated models"
