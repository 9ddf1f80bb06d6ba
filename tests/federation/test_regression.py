"""A regression on the whole path: it learns as from pooled data, and every program compares models by its error."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import RidgeCV

from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.data.npz import NpzSource
from moonfed.edge_client.data.split import split
from moonfed.experiments.child_processes import run
from moonfed.experiments.datasets import SplitDataSet, load_dataset, preprocessing
from moonfed.experiments.partition import PartitionSettings, write_partition
from moonfed.export import build_bundle
from moonfed.export.binding import bind_file
from moonfed.export.scoring import Predictor

from .conftest import Federation

pytestmark = pytest.mark.slow

DEVICES, HOLDOUT, ROUNDS = ("cam-1", "cam-2", "cam-3"), 0.25, 40
SETTINGS = {"epochs": 1.0, "batch_size": 16.0}  # ten epochs a round, the default, overfit a hundred patients
UNIT = "points"
FIGURES = re.compile(r"([a-z_0-9]+) [-.0-9]+(?: ([A-Za-z]+))?(?:,|  )")
Array = npt.NDArray[np.float32]


def error_of_pooled_ridge(data: SplitDataSet) -> float:
    scale = preprocessing(data)
    train, test = ((part.inputs - scale.mean) / scale.deviation for part in (data.train, data.test))
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(train, data.train.known_targets()[:, 0])
    return float(np.sqrt(((ridge.predict(test) - data.test.known_targets()[:, 0]) ** 2).mean()))


def build(data: SplitDataSet, output: Path) -> None:
    values, scale = data.train.known_targets(), preprocessing(data)
    mean, deviation = (float(values.mean()),), (float(values.std()),)
    target = replace(data.train.target, units=(UNIT,), mean=mean, deviation=deviation)
    features = {"shape": data.train.inputs.shape[1], "mean": scale.mean, "std": scale.deviation}
    build_bundle(model="mlp", **features, target=target, task="regression", settings=SETTINGS, output=output)


def root_mean_square(bundle: Path, model: Path, inputs: Array, targets: Array) -> float:
    graph = bind_file((bundle / GRAPH_FILE).read_bytes(), model, read_bundle(bundle).manifest)
    return float(np.sqrt(((Predictor(graph).predict(inputs).astype(np.float64) - targets) ** 2).mean()))


@pytest.mark.timeout(300)
def test_a_regression_ends_within_5_percent_of_pooled_ridge_and_is_compared_by_its_error(
    federation: Federation, tmp_path: Path
) -> None:
    bundle, test, data = tmp_path / "bundle", tmp_path / "test.npz", load_dataset("diabetes", None)
    aim = round(1.05 * error_of_pooled_ridge(data), 1)
    build(data, bundle)
    parts = write_partition(data, PartitionSettings(devices=len(DEVICES), beta=0.5), tmp_path).devices
    federation.serve()
    federation.enrol(*DEVICES)
    for name, part in zip(DEVICES, parts, strict=True):
        federation.start_device(name, "--holdout", str(HOLDOUT), data=str(part))
    options = ("--rounds", str(ROUNDS), "--minimum-devices", "3", "--cohort", "all", "--target", f"rmse={aim}")
    federation.start_run(bundle, "patients", *options)
    operator = federation.operator
    printed = run("moonfed-export", "evaluate", "patients", *operator, "--data", str(test), "--follow")
    ended = federation.until_finished("patients")
    assert 0 < ended.round < ROUNDS
    assert (ended.metric.name, ended.metric.maximise, ended.metric.share) == ("rmse", False, False)
    assert FIGURES.findall(printed.splitlines()[0]) == [("rmse", UNIT), ("mae", UNIT), ("r2", ""), ("loss", "")]

    metrics = {one.round: dict(one.metrics) for one in federation.rounds("patients") if "rmse" in one.metrics}
    reached = min(round_ for round_, found in metrics.items() if found["rmse"] <= aim)
    model = tmp_path / "model.safetensors"
    run("moonfed-coordinator", "run", "weights", "patients", *operator, "--round", str(reached), "--output", str(model))
    with np.load(test) as arrays:
        expected = root_mean_square(bundle, model, arrays["inputs"], arrays["targets"])
        residue = ((arrays["targets"] - arrays["targets"].mean()) ** 2).mean()
    assert metrics[reached]["rmse"] == pytest.approx(expected, rel=1e-5)
    assert metrics[reached]["loss"] == pytest.approx(expected**2, rel=1e-5)
    assert metrics[reached]["r2"] == pytest.approx(1 - expected**2 / residue, rel=1e-5)
    assert "rmse" not in {name for one in federation.rounds("patients") for name in one.metrics} - set(metrics[reached])

    shown = run("moonfed-coordinator", "run", "show", "patients", *operator, "--all")
    heads = next(re.split(" {2,}", line) for line in shown.splitlines() if line.startswith("round "))
    assert heads[3:10] == [
        f"rmse ({UNIT})",
        f"holdout_rmse ({UNIT})",
        f"mae ({UNIT})",
        "r2",
        "loss",
        "train_loss",
        "holdout_loss",
    ]
    assert f"has reached rmse {metrics[reached]['rmse']:.4g}" in federation.log("coordinator")

    asked = ("moonfed-coordinator", "run", "evaluate", "patients", *operator, "--round", str(reached))
    found = json.loads(run(*asked, "--json"))
    scores = {one["device"]: one for one in found["on_devices"]["scores"]}
    for name, part in zip(DEVICES, parts, strict=True):
        manifest = read_bundle(bundle).manifest
        samples = split(NpzSource(part).read(manifest.input, manifest.target), HOLDOUT)[1]
        error = root_mean_square(bundle, model, samples.inputs, samples.known_targets())
        assert (scores[name]["samples"], scores[name]["score"]) == (len(samples), pytest.approx(error, rel=1e-4))
    values = [one["score"] for one in scores.values()]
    assert (found["metric"], found["value"]) == ("rmse", pytest.approx(np.median(values)))
    assert found["on_devices"]["worst_decile"] == max(values)
    assert f"model {reached} on 3 devices: rmse median {np.median(values):.4f}" in run(*asked)
