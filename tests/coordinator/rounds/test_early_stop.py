"""Early stopping by the metrics of global models."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.early_stop import is_done
from moonfed.errors import InvalidInput
from tests.support.refusals import refused

Metrics = Mapping[int, Mapping[str, float]]


def accuracies(*values: float | None) -> Metrics:
    scores: list[dict[str, float]] = [{} if value is None else {"accuracy": value} for value in values]
    return {round_: {"train_loss": 1.0, **score} for round_, score in enumerate(scores)}


@pytest.mark.parametrize(
    ("metrics", "done"),
    [
        ({}, False),
        (accuracies(0.1, 0.5, 0.6), False),
        (accuracies(0.1, 0.6, 0.5), False),
        (accuracies(0.1, 0.6, 0.5, 0.6), True),  # the same again is no gain
        (accuracies(0.1, 0.6, 0.5, 0.61), False),
        (accuracies(0.6, 0.5, 0.5), True),  # the initial model was the best
        (accuracies(0.1, 0.6, None, None, 0.5), False),  # only evaluated models count
        ({round_: {"holdout_accuracy": 0.5} for round_ in range(9)}, False),  # which devices claim
        ({round_: {"loss": 1.0} for round_ in range(9)}, False),
    ],
)
def test_a_run_is_done_when_so_many_evaluated_models_are_no_more_accurate(metrics: Metrics, done: bool) -> None:
    assert bool(is_done(RunSettings(stop_after=2), ACCURACY, metrics)) is done
    assert is_done(RunSettings(), ACCURACY, metrics) == ""


@pytest.mark.parametrize(
    ("targets", "done"),
    [
        ({"accuracy": 0.9}, True),
        ({"accuracy": 0.95}, False),
        ({"loss": 0.4}, True),
        ({"loss": 0.2}, False),
        ({"loss@night": 0.7}, True),
        ({"loss@night": 0.5}, False),
        ({"calibration_error": 0.05}, True),
        ({"accuracy": 0.8, "loss": 0.3}, True),
        ({"accuracy": 0.9, "loss": 0.3}, False),  # no model has both
        ({"f1": 0.1}, False),
    ],
)
def test_a_run_is_done_when_a_model_reaches_all_targets(targets: dict[str, float], done: bool) -> None:
    metrics = {
        1: {"accuracy": 0.9, "loss": 0.4},
        2: {"accuracy": 0.85, "loss": 0.3, "calibration_error": 0.05, "loss@night": 0.6},
    }
    assert bool(is_done(RunSettings(target_metrics=targets), ACCURACY, metrics)) is done


@pytest.mark.parametrize(
    ("errors", "done"),
    [
        ((9.0, 5.0, 4.0, 3.0), False),
        ((9.0, 3.0, 4.0, 5.0), True),
        ((9.0, 3.0, 4.0, 3.0), True),
        ((9.0, 3.0, 4.0, 2.9), False),
        ((3.0, 4.0, 5.0), True),
    ],
)
@pytest.mark.parametrize("name", ["rmse", "deviance"])
def test_a_metric_that_is_better_if_lower_ends_a_run_once_it_falls_no_more(
    errors: tuple[float, ...], done: bool, name: str
) -> None:
    metric = Metric(name=name, maximise=False, share=False)
    metrics = {round_: {name: error} for round_, error in enumerate(errors)}
    assert bool(is_done(RunSettings(stop_after=2), metric, metrics)) is done
    for target in (name, f"{name}@night", f"holdout_{name}"):
        found = {1: {target: 2.0}}
        assert is_done(RunSettings(target_metrics={target: 2.0}), metric, found)
        assert not is_done(RunSettings(target_metrics={target: 1.9}), metric, found)


@pytest.mark.parametrize(
    ("target", "reached"),
    [({"mae": 2.0}, True), ({"mae": 1.9}, False), ({"r2": 0.4}, True), ({"r2": 0.6}, False), ({"loss": 3.0}, False)],
)
def test_other_metrics_have_the_direction_of_their_name(target: dict[str, float], reached: bool) -> None:
    metric = Metric(name="rmse", maximise=False, share=False)
    metrics = {1: {"rmse": 2.0, "mae": 2.0, "r2": 0.5, "loss": 4.0}}
    assert bool(is_done(RunSettings(target_metrics=target), metric, metrics)) is reached


@pytest.mark.parametrize("value", ["high", True])
def test_a_target_is_a_number(value: object) -> None:
    with refused(InvalidInput, "target_metrics.accuracy", value):
        RunSettings.read({"target_metrics": {"accuracy": value}})
