"""The path from a finished federation to a device that predicts with its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from moonfed.bundle import read_bundle
from moonfed.experiments.child_processes import run
from moonfed.manifest import PLAN_FILE
from moonfed.plan import load_plan
from moonfed.tensors import split

from .conftest import Federation

DEVICES = ("cam-1", "cam-2", "cam-3")


def test_devices_predict_with_the_last_model_of_a_run_that_has_finished(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    bundle = make_bundle("moon", mu=1, epochs=10, learning_rate=0.05)
    federation.serve()
    federation.enrol(*DEVICES)
    for name in DEVICES[:2]:
        federation.start_device(name)
    federation.until_online(2)
    federation.start_run(bundle, "digits", "--rounds", "2", "--minimum-devices", "2", "--cohort", "all")
    federation.until_finished("digits")
    for name in DEVICES[:2]:
        federation.until_log(name, "run digits has ended; stored its model for predictions")
        assert not (federation.directory / name / "runs" / "digits").exists()

    # The run's last model, as the coordinator keeps it, evaluated here and now.
    manifest = read_bundle(bundle).manifest
    weights = split(federation.global_model("digits", 2, bundle), manifest.tensors)
    plan = load_plan(bundle / PLAN_FILE, "cpu")
    plan.begin_round([torch.from_numpy(weights[spec.name]) for spec in manifest.tensors], [], {},
                     manifest.training.hyperparameters)  # fmt: skip
    test = federation.parts / "test.npz"
    with np.load(test) as arrays:
        inputs, labels = arrays["inputs"], arrays["labels"]
    expected = plan.predict(torch.from_numpy(inputs)).detach().numpy()

    # cam-1 is still running while it predicts.
    state = ("--state", str(federation.directory / "cam-1"), "--threads", "1", "--json")
    told = json.loads(run("moonfed-client", "predict", str(test), *state))
    assert (told["run"], told["rounds"]) == ("digits", 2)
    assert np.allclose([entry["probabilities"] for entry in told["predictions"]], expected, atol=1e-5)
    assert told["accuracy"] == np.mean(expected.argmax(axis=1) == labels)
    assert told["accuracy"] > 0.3  # chance is 0.1

    picture = federation.directory / "digit.png"
    Image.fromarray(inputs[0].reshape(8, 8)).save(picture)
    (one,) = json.loads(run("moonfed-client", "predict", str(picture), *state))["predictions"]
    assert one["class"] == manifest.classes[int(expected[0].argmax())]


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
    run("moonfed-coordinator", "run", "stop", "digits", *federation.operator)
    federation.until_log("cam-1", "run digits has ended; deleted its files")
    assert (federation.directory / "cam-2" / "runs" / "digits").exists()
    federation.start_device("cam-2")
    federation.until_log("cam-2", "run digits has ended; deleted its files")
    assert not (federation.directory / "cam-2" / "runs" / "digits").exists()
    assert not (federation.directory / "cam-2" / "finished").exists()
