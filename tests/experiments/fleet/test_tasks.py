"""Simulations of every task, from built-in and own samples, with their metric by its name and direction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.metrics import roc_auc_score

from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import load_dataset, preprocessing
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.results import SimulationResult
from moonfed.experiments.fleet.run import run_simulation
from tests.support.refusals import refused
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow

TWO = EngineSettings(workers=2)


def simulate(output: Path, data: Path | None = None, **keys: Any) -> SimulationResult:
    return run_simulation(make_simulation(**keys), output, data=data, engine=TWO)


def summary(result: SimulationResult) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.layout.summary.read_text())
    return found


def test_a_regression_of_diabetes_is_within_5_percent_of_pooled_ridge(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "dataset": "diabetes",
        "model": "mlp",
        "settings": {"epochs": 2, "batch_size": 32, "learning_rate": 0.01},
    }
    result = simulate(tmp_path / "a", parties=3, rounds=10, **keys)
    data = load_dataset("diabetes", None)
    scale = preprocessing(data)
    train, test = ((part.inputs - scale.mean) / scale.deviation for part in (data.train, data.test))
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(train, data.train.known_targets()[:, 0])
    errors = ridge.predict(test) - data.test.known_targets()[:, 0]
    assert result.score < 1.05 * np.sqrt(np.mean(errors**2))
    found = summary(result)
    assert found["rmse"] == result.score
    assert found["best_rmse"] == min(entry.score for entry in result.rounds)
    assert found["metric"] == {"name": "rmse", "maximise": False, "share": False, "unit": ""}
    assert result.rounds[-1].other_scores.keys() == {"mae", "r2"}
    assert result.counts.shape == (3, 10), "tenths of the values"


def test_anomalous_digits_are_told_apart_as_well_as_by_pca(tmp_path: Path) -> None:
    settings = {"epochs": 30, "batch_size": 16, "learning_rate": 0.01}
    result = simulate(
        tmp_path / "a", dataset="digit-anomalies", model="mlp", projection=4, optimiser="adam", parties=3,
        partition="iid", rounds=6, settings=settings,
    )  # fmt: skip
    data = load_dataset("digit-anomalies", None)
    scale = preprocessing(data)
    train, test = ((part.inputs - scale.mean) / scale.deviation for part in (data.train, data.test))
    pca = PCA(4).fit(train)
    errors = ((pca.inverse_transform(pca.transform(test)) - test) ** 2).mean(axis=1)
    assert result.rounds[-1].other_scores["auroc"] > roc_auc_score(data.test.known_targets(), errors) - 0.01
    assert summary(result)["auroc"] == result.rounds[-1].other_scores["auroc"]


def test_both_digits_of_a_pair_are_found(tmp_path: Path) -> None:
    settings = {"epochs": 4, "batch_size": 32, "learning_rate": 0.003}
    result = simulate(
        tmp_path / "a", dataset="digit-pairs", optimiser="adam", parties=4, partition="dirichlet-sizes", beta=2.0,
        rounds=6, settings=settings,
    )  # fmt: skip
    assert result.metric.name == "macro_f1"
    assert result.score > 0.6


def write_seasons(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Write windows of 24 hours, and the 6 hours that follow, of a noisy day with a trend over the week."""
    generator, hours = np.random.default_rng(0), np.arange(900)
    series = np.sin(hours * 2 * np.pi / 24) + 0.5 * np.sin(hours * 2 * np.pi / 168) + generator.normal(0, 0.2, 900)
    starts = np.arange(len(series) - 30)
    inputs = np.stack([series[start : start + 24] for start in starts]).astype(np.float32)[:, :, None]
    targets = np.stack([series[start + 24 : start + 30] for start in starts]).astype(np.float32)[:, :, None]
    np.savez(path, inputs=inputs, targets=targets)
    return inputs, targets


SERIES_MODEL = """
from torch import nn

def build(shape, outputs):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], 32), nn.ReLU())
    return encoder, nn.Identity(), nn.Linear(32, outputs)
"""


def test_a_forecast_beats_the_seasonal_naive_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "season_model.py").write_text(SERIES_MODEL)
    monkeypatch.chdir(tmp_path)
    inputs, targets = write_seasons(tmp_path / "seasons.npz")
    settings = {"epochs": 3, "batch_size": 32, "learning_rate": 0.003, "loss": "huber"}
    result = simulate(
        tmp_path / "a", tmp_path / "seasons.npz", task="regression", model="season_model:build", optimiser="adam",
        parties=3, partition="iid", rounds=6, settings=settings,
    )  # fmt: skip
    test = slice(len(inputs) - len(inputs) // 5, None)
    naive = inputs[test, :6] - targets[test]  # the same hours of the day before
    assert result.score < np.sqrt(np.mean(naive**2))


@pytest.mark.parametrize("method", ["solo", "pooled"])
def test_alone_and_pooled_training_are_scored_by_the_task(tmp_path: Path, method: str) -> None:
    settings = {"epochs": 2, "batch_size": 32, "learning_rate": 0.01}
    sizes: dict[str, Any] = {"rounds": 2} if method == "pooled" else {}
    result = simulate(
        tmp_path / "a", dataset="diabetes", model="mlp", method=method, parties=3, settings=settings, **sizes
    )
    assert 30 < result.score < 120
    found = summary(result)
    assert found["rmse"] == result.score
    assert ("rmse_sd" in found) == (method == "solo")


def test_scores_are_recovered_from_the_run_with_all_of_the_tasks_metrics(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"dataset": "digit-anomalies", "model": "mlp", "parties": 2, "partition": "iid"}
    first = simulate(tmp_path / "a", rounds=2, settings={"epochs": 1}, **keys)
    before = first.layout.results.read_text()
    first.layout.results.unlink()
    first.layout.summary.unlink()
    again = simulate(tmp_path / "a", rounds=2, settings={"epochs": 1}, **keys)
    assert again.layout.results.read_text() == before
    assert again.rounds[-1].other_scores.keys() == {"auroc"}
    assert again.rounds[-1].metrics.keys() == {"train_loss"}


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-moon", "dirichlet-equal", "dirichlet-mix"])
def test_splits_by_class_refuse_targets_without_classes(tmp_path: Path, kind: str) -> None:
    with refused(InvalidInput, "partition", kind):
        simulate(tmp_path / "a", dataset="digit-pairs", parties=4, partition=kind)


def test_a_table_with_values_needs_its_task_and_is_pooled_whatever_its_parties(tmp_path: Path) -> None:
    lines = [f"{number},{number % 2},{3 * number}.5" for number in range(60)]
    (tmp_path / "houses.csv").write_text("\n".join(["rooms,site,price", *lines]))
    keys: dict[str, Any] = {"target": "price", "model": "mlp", "rounds": 1, "settings": {"epochs": 1}}
    pooled = make_simulation(task="regression", method="pooled", by="site", **keys).with_parties(2)
    result = run_simulation(pooled, tmp_path / "a", data=tmp_path / "houses.csv", engine=TWO)
    assert result.metric.name == "rmse"
    assert result.counts.sum(axis=1).tolist() == [48]
    with refused(InvalidInput, "task"):
        make_simulation(dataset="diabetes", task="multilabel", model="mlp")
