"""From bundle to prediction, for tasks besides classification: a run, its release, a device that installs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from moonfed.experiments.child_processes import run
from moonfed.models.repository import MODEL_FILE
from tests.support.session_cache import cached

from .conftest import Federation

pytestmark = pytest.mark.slow

DEVICES = ("cam-1", "cam-2", "cam-3")
NAMES = {"cam-1": "houses", "cam-2": "weeds", "cam-3": "bearing"}
OPTIONS = {
    "cam-1": ("--task", "regression", "--input", "features:3", "--values", "price:EUR,area", "--model", "mlp",
              "--target-mean", "300,80", "--target-std", "80,20"),
    "cam-2": ("--task", "segmentation", "--input", "16x16x3", "--classes", "soil,crop,weed", "--model", "unet"),
    "cam-3": ("--task", "anomaly-detection", "--input", "features:6", "--model", "autoencoder"),
}  # fmt: skip
ROUND = ("--rounds", "1", "--minimum-devices", "1", "--cohort", "all")
SAMPLES = 40
Array = npt.NDArray[Any]


def bundle_of(device: str) -> Path:
    command = ("moonfed-export", "bundle", "--set", "batch_size=10", "--set", "epochs=1", *OPTIONS[device])
    return cached(" ".join(command).encode(), lambda path: run(*command, "--output", str(path)))


def houses(directory: Path) -> tuple[Path, Array]:
    inputs = np.random.default_rng(1).normal(size=(SAMPLES, 3)).astype(np.float32)
    targets = np.stack([300 + 60 * inputs[:, 0], 80 + 10 * inputs[:, 1]], axis=1).astype(np.float32)
    np.savez(directory / "houses.npz", inputs=inputs, targets=targets)
    return directory / "houses.npz", targets


def weeds(directory: Path) -> tuple[Path, Array]:
    """Write images, of another size than the model's, whose colours tell the class of each pixel."""
    generator = np.random.default_rng(2)
    masks = np.kron(generator.integers(0, 3, (SAMPLES, 4, 4)), np.ones((8, 8))).astype(np.uint8)
    for name in ("images", "masks"):
        (directory / "weeds" / name).mkdir(parents=True)
    for number, mask in enumerate(masks):
        pixels = np.eye(3)[mask] * 200 + generator.integers(0, 50, (32, 32, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(directory / "weeds" / "images" / f"{number:02}.png")
        Image.fromarray(mask).save(directory / "weeds" / "masks" / f"{number:02}.png")
    return directory / "weeds", masks


def bearing(directory: Path) -> tuple[Path, Array]:
    """Write usual samples, and for the test as many that are ten times as large."""
    usual = np.random.default_rng(3).normal(size=(SAMPLES, 6)).astype(np.float32)
    np.savez(directory / "bearing.npz", inputs=usual)
    anomalous = np.repeat(np.array([0, 1], np.uint8), SAMPLES)
    np.savez(directory / "bearing-test.npz", inputs=np.concatenate([usual, 10 * usual]), targets=anomalous)
    return directory / "bearing.npz", anomalous


def outputs(federation: Federation, device: str, name: str, inputs: Array) -> Array:
    """Run the installed ONNX file."""
    file = federation.directory / device / "repository" / NAMES[device] / "1" / MODEL_FILE
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.asarray(session.run([name], {"inputs": inputs})[0])


def predict(federation: Federation, device: str, *arguments: str | Path) -> str:
    state = ("--state", str(federation.directory / device), "--threads", "1")
    return run("moonfed-client", "predict", *map(str, arguments), *state)


@pytest.mark.timeout(300)
def test_released_models_of_each_task_predict_on_devices(federation: Federation, tmp_path: Path) -> None:
    federation.serve()
    federation.enrol(*DEVICES)
    written = {"cam-1": houses(tmp_path), "cam-2": weeds(tmp_path), "cam-3": bearing(tmp_path)}
    test = {device: data for device, (data, _) in written.items()} | {"cam-3": tmp_path / "bearing-test.npz"}
    for device, (data, _) in written.items():
        federation.start_device(device, "--holdout", "0.2", data=str(data))
    federation.until_online(3)
    for device in DEVICES:
        federation.start_run(bundle_of(device), f"run-of-{device}", *ROUND)
    created = dict[str, dict[str, Any]]()
    for device, name in NAMES.items():
        federation.until_finished(f"run-of-{device}")
        chosen = ("--name", name, "--data", str(test[device]), *federation.operator)
        options = ("--variant", "float16", "--max-drop", "5", "--keep", "smaller", "--json")
        created[device] = json.loads(run("moonfed-export", "release", "create", f"run-of-{device}", *chosen, *options))
        run("moonfed-coordinator", "release", "deploy", name, "--version", "1", *federation.operator)
    for device, name in NAMES.items():
        federation.until_log(device, f"version 1 of model {name}: installed")
    assert all(one["variants"] == ["float16", "float32"] for one in created.values())
    houses_are_told_in_euros(federation, created["cam-1"], *written["cam-1"])
    weeds_are_drawn(federation, created["cam-2"], *written["cam-2"])
    bearings_are_judged(federation, created["cam-3"], test["cam-3"])


def houses_are_told_in_euros(federation: Federation, created: dict[str, Any], data: Path, targets: Array) -> None:
    with np.load(data) as arrays:
        values = outputs(federation, "cam-1", "values", arrays["inputs"])
    told = json.loads(predict(federation, "cam-1", data, "--json"))
    found = [[one["values"][name] for name in ("price", "area")] for one in told["predictions"]]
    assert np.allclose(found, values, rtol=1e-5)
    error = np.sqrt(((values.astype(np.float64) - targets) ** 2).mean())
    assert told["rmse"] == pytest.approx(error, rel=1e-5)
    assert created["rmse"] == pytest.approx(error, rel=1e-5)
    lines = predict(federation, "cam-1", data).splitlines()
    assert lines[1] == f"houses.npz[0]   price {values[0, 0]:.6g} EUR, area {values[0, 1]:.6g}"
    assert lines[-1] == f"rmse {error:.4f} on {SAMPLES} samples"
    shown = run("moonfed-coordinator", "release", "show", "houses", "--version", "1", *federation.operator)
    assert f"rmse {error:.4f} on {SAMPLES} samples" in " ".join(shown.split())


def weeds_are_drawn(federation: Federation, created: dict[str, Any], data: Path, masks: Array) -> None:
    drawn = federation.directory / "drawn"
    told = json.loads(predict(federation, "cam-2", data / "images", "--masks", drawn, "--json"))["predictions"]
    resized = [
        np.asarray(Image.open(data / "images" / f"{number:02}.png").resize((16, 16), Image.Resampling.BILINEAR))
        for number in range(SAMPLES)
    ]
    expected = outputs(federation, "cam-2", "probabilities", np.stack(resized)).argmax(axis=1)
    assert [one["mask"] for one in told] == [str(drawn / f"{number:02}.mask.png") for number in range(SAMPLES)]
    for one, mask in zip(told, expected, strict=True):
        assert (np.asarray(Image.open(one["mask"])) == mask).all()
        shares = np.bincount(mask.ravel(), minlength=3) / mask.size
        assert list(one["shares"].values()) == pytest.approx(list(shares))
    true = masks[:, 4::8, 4::8].repeat(4, axis=1).repeat(4, axis=2)
    both = [((expected == place) & (true == place)).sum() for place in range(3)]
    either = [((expected == place) | (true == place)).sum() for place in range(3)]
    assert created["mean_iou"] == pytest.approx(np.mean(np.divide(both, either)))


def bearings_are_judged(federation: Federation, created: dict[str, Any], data: Path) -> None:
    with np.load(data) as arrays:
        scores = outputs(federation, "cam-3", "scores", arrays["inputs"]).astype(np.float64)
    usual = scores[:SAMPLES]
    threshold = float(f"{np.quantile(usual, 0.99):g}")
    assert created["reconstruction_error"] == pytest.approx(usual.mean(), rel=1e-5)
    told = json.loads(predict(federation, "cam-3", data, "--json"))["predictions"]
    assert [one["threshold"] for one in told] == pytest.approx([threshold] * len(scores), rel=1e-4)
    assert [one["anomalous"] for one in told] == [score > told[0]["threshold"] for score in scores]
    *_, line_, last = predict(federation, "cam-3", data).splitlines()
    anomalous = np.repeat([0, 1], SAMPLES)
    assert last == f"auroc {roc_auc_score(anomalous, scores):.4f} on {2 * SAMPLES} samples"
    line = line_.split()
    assert line[0] == f"bearing-test.npz[{2 * SAMPLES - 1}]"
    assert line[1:] == ["anomaly", "score", f"{scores[-1]:.4g}", "(threshold", f"{told[0]['threshold']:.4g})"]
