"""The path from a run to devices that predict with a release of it, and to those that keep their own model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from moonfed.experiments.child_processes import run
from moonfed.models.repository import MODEL_FILE
from tests.support.predictions import in_order
from tests.support.session_cache import cached

from .conftest import Federation

pytestmark = pytest.mark.slow

DEVICES = ("cam-1", "cam-2", "cam-3")
# By device: its bundle's options, and the shape and dtype of its samples.
FORMS = {
    "cam-1": (("--model", "cnn", "--input", "8x8x1", "--classes", "10"), (8, 8, 1), np.uint8),
    "cam-2": (("--model", "cnn", "--input", "24x24x3", "--classes", "3"), (24, 24, 3), np.uint8),
    "cam-3": (("--model", "mlp", "--input", "features:6", "--classes", "4"), (6,), np.float32),
}
CLASSES = {"cam-1": 10, "cam-2": 3, "cam-3": 4}
PRODUCES_ONE_ROUND = ("--rounds", "1", "--minimum-devices", "1", "--cohort", "all")


def data_of(directory: Path, device: str) -> Path:
    """Write samples in a device's form."""
    _, shape, dtype = FORMS[device]
    inputs = np.random.default_rng(5).integers(0, 256, (40, *shape)).astype(dtype)
    file = directory / f"{device}.npz"
    np.savez(file, inputs=inputs, labels=np.arange(40) % CLASSES[device])
    return file


def bundle_of(device: str) -> Path:
    command = ("moonfed-export", "bundle", "--method", "fedavg", "--set", "batch_size=20", "--set", "epochs=1")
    whole = (*command, *FORMS[device][0])
    return cached(" ".join(whole).encode(), lambda path: run(*whole, "--output", str(path)))


def predictions(federation: Federation, device: str, *options: str) -> dict[str, object]:
    data, state = federation.directory / f"{device}.npz", federation.directory / device
    told = run("moonfed-client", "predict", str(data), "--state", str(state), "--threads", "1", "--json", *options)
    return dict(json.loads(told))


@pytest.mark.timeout(240)
def test_devices_with_different_inputs_keep_their_own_models_whatever_runs_finish(federation: Federation) -> None:
    federation.serve()
    federation.enrol(*DEVICES)
    data = {device: data_of(federation.directory, device) for device in DEVICES}
    for device in DEVICES:
        federation.start_device(device, "--holdout", "0.2", data=str(data[device]))
    federation.until_online(3)
    for device in DEVICES:
        federation.start_run(bundle_of(device), f"run-of-{device}", *PRODUCES_ONE_ROUND)
    for device in DEVICES:
        name = f"model-of-{device}"
        federation.until_finished(f"run-of-{device}")
        federation.until_log(device, f"run run-of-{device} has ended")
        run("moonfed-export", "release", "create", f"run-of-{device}", "--name", name, "--data", str(data[device]),
            *federation.operator)  # fmt: skip
        run("moonfed-coordinator", "release", "deploy", name, "--version", "1", *federation.operator)
    for device in DEVICES:
        federation.until_log(device, f"version 1 of model model-of-{device}: installed")
        for other in set(DEVICES) - {device}:
            federation.until_log(device, f"version 1 of model model-of-{other}: declined: inputs of")
    before = {device: predictions(federation, device) for device in DEVICES}
    for device in DEVICES:
        assert (before[device]["model"], before[device]["version"]) == (f"model-of-{device}", 1)
        _agrees_with_onnx_runtime(federation, device, before[device])
    federation.start_run(bundle_of("cam-1"), "another", *PRODUCES_ONE_ROUND)
    federation.until_finished("another")
    federation.until_log("cam-1", "run another has ended")
    assert {device: predictions(federation, device) for device in DEVICES} == before

    picture = federation.directory / "digit.png"
    with np.load(data["cam-1"]) as arrays:
        Image.fromarray(arrays["inputs"][0].reshape(8, 8)).save(picture)
    state = ("--state", str(federation.directory / "cam-1"), "--threads", "1", "--json")
    (one,) = json.loads(run("moonfed-client", "predict", str(picture), *state))["predictions"]
    first = before["cam-1"]["predictions"]
    assert isinstance(first, list)
    assert one["class"] == first[0]["class"]


def _agrees_with_onnx_runtime(federation: Federation, device: str, told: dict[str, object]) -> None:
    model = federation.directory / device / "repository" / f"model-of-{device}" / "1" / MODEL_FILE
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with np.load(federation.directory / f"{device}.npz") as arrays:
        (expected,) = session.run(["probabilities"], {"inputs": arrays["inputs"]})
    entries = told["predictions"]
    assert isinstance(entries, list)
    assert np.allclose([in_order(entry) for entry in entries], expected, atol=1e-5)


def test_a_device_that_was_offline_when_its_run_ended_learns_of_it_on_reconnecting(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    bundle = make_bundle("moon", mu=5, epochs=3)
    federation.serve()
    federation.enrol(*DEVICES)
    for name in DEVICES[:2]:
        federation.start_device(name)
    federation.until_online(2)
    settings = ("--minimum-devices", "1", "--quorum", "1", "--cohort", "all", "--heartbeat-timeout", "5")
    federation.start_run(bundle, "digits", "--rounds", "30", *settings)
    federation.until("digits", lambda _: (federation.directory / "cam-2" / "runs" / "digits").exists())
    federation.until("digits", lambda seen: seen.round >= 1)
    federation.kill("cam-2")
    run("moonfed-coordinator", "run", "stop", "digits", "--yes", *federation.operator)
    federation.until_log("cam-1", "run digits has ended")
    assert (federation.directory / "cam-2" / "runs" / "digits").exists()
    federation.start_device("cam-2")
    federation.until_log("cam-2", "run digits has ended")
    assert not (federation.directory / "cam-2" / "runs" / "digits").exists()
    assert not (federation.directory / "cam-2" / "repository").exists()
