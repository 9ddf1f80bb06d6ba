"""A regression on the whole path: evaluator, devices and operators' commands compare models by its error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.bundle.target import TargetSpec
from moonfed.data.npz import NpzSource
from moonfed.edge_client.data.split import split
from moonfed.experiments.child_processes import run
from moonfed.export import build_bundle
from moonfed.export.binding import bind_file
from moonfed.export.scoring import Predictor

from .conftest import Federation

pytestmark = pytest.mark.slow

DEVICES, HOLDOUT, ROUNDS = ("cam-1", "cam-2"), 0.3, 40
PRICE = TargetSpec(kind="values", names=("price",), shape=(1,), units=("kEUR",), mean=(300.0,), deviation=(80.0,))
FIGURES = re.compile(r"([a-z_0-9]+) [-.0-9]+(?: ([A-Za-z]+))?(?:,|  )")
Array = npt.NDArray[np.float32]


def write_samples(file: Path, number: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(number, 3)).astype(np.float32)
    prices = 300 + inputs @ (60.0, -40.0, 30.0) + generator.normal(0, 4, number)
    np.savez(file, allow_pickle=False, inputs=inputs, targets=prices[:, None].astype(np.float32))


def root_mean_square(bundle: Path, model: Path, inputs: Array, targets: Array) -> float:
    graph = bind_file((bundle / GRAPH_FILE).read_bytes(), model, read_bundle(bundle).manifest)
    return float(np.sqrt(((Predictor(graph).predict(inputs).astype(np.float64) - targets) ** 2).mean()))


@pytest.mark.timeout(300)
def test_a_regression_ends_at_its_target_and_is_compared_by_its_error(federation: Federation, tmp_path: Path) -> None:
    bundle, test = tmp_path / "bundle", tmp_path / "test.npz"
    settings = {"epochs": 1.0, "batch_size": 32.0, "learning_rate": 0.05}
    build_bundle(model="mlp", shape=3, target=PRICE, task="regression", settings=settings, output=bundle)
    write_samples(test, 200, 0)
    federation.serve()
    federation.enrol(*DEVICES)
    for number, name in enumerate(DEVICES, start=1):
        write_samples(tmp_path / f"{name}.npz", 200, number)
        federation.start_device(name, "--holdout", str(HOLDOUT), data=str(tmp_path / f"{name}.npz"))
    options = ("--rounds", str(ROUNDS), "--minimum-devices", "2", "--cohort", "all", "--target", "rmse=20")
    federation.start_run(bundle, "prices", *options)
    operator = federation.operator
    printed = run("moonfed-export", "evaluate", "prices", *operator, "--data", str(test), "--follow")
    ended = federation.until_finished("prices")
    assert 0 < ended.round < ROUNDS
    assert (ended.metric.name, ended.metric.maximise, ended.metric.share) == ("rmse", False, False)
    assert FIGURES.findall(printed.splitlines()[0]) == [("rmse", "kEUR"), ("mae", "kEUR"), ("r2", ""), ("loss", "")]

    metrics = {one.round: dict(one.metrics) for one in federation.rounds("prices") if "rmse" in one.metrics}
    reached = min(round_ for round_, found in metrics.items() if found["rmse"] <= 20)
    model = tmp_path / "model.safetensors"
    run("moonfed-coordinator", "run", "weights", "prices", *operator, "--round", str(reached), "--output", str(model))
    with np.load(test) as arrays:
        expected = root_mean_square(bundle, model, arrays["inputs"], arrays["targets"])
        residue = ((arrays["targets"] - arrays["targets"].mean()) ** 2).mean()
    assert metrics[reached]["rmse"] == pytest.approx(expected, rel=1e-5)
    assert metrics[reached]["loss"] == pytest.approx(expected**2, rel=1e-5)
    assert metrics[reached]["r2"] == pytest.approx(1 - expected**2 / residue, rel=1e-5)
    assert "rmse" not in {name for one in federation.rounds("prices") for name in one.metrics} - set(metrics[reached])

    shown = run("moonfed-coordinator", "run", "show", "prices", *operator, "--all")
    heads = next(re.split(" {2,}", line) for line in shown.splitlines() if line.startswith("round "))
    assert heads[3:10] == [
        "rmse (kEUR)",
        "holdout_rmse (kEUR)",
        "mae (kEUR)",
        "r2",
        "loss",
        "train_loss",
        "holdout_loss",
    ]
    assert f"has reached rmse {metrics[reached]['rmse']:.4g}" in federation.log("coordinator")

    asked = ("moonfed-coordinator", "run", "evaluate", "prices", *operator, "--round", str(reached))
    found = json.loads(run(*asked, "--json"))
    scores = {one["device"]: one for one in found["on_devices"]["scores"]}
    for name in DEVICES:
        manifest = read_bundle(bundle).manifest
        samples = split(NpzSource(tmp_path / f"{name}.npz").read(manifest.input, manifest.target), HOLDOUT)[1]
        error = root_mean_square(bundle, model, samples.inputs, samples.known_targets())
        assert (scores[name]["samples"], scores[name]["score"]) == (60, pytest.approx(error, rel=1e-4))
    values = [one["score"] for one in scores.values()]
    assert (found["metric"], found["value"]) == ("rmse", pytest.approx(np.median(values)))
    assert found["on_devices"]["worst_decile"] == max(values)
    assert f"model {reached} on 2 devices: rmse median {np.median(values):.4f}" in run(*asked)
