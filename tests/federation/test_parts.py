"""Frozen and personal tensors on real programs: what is fetched once, and what never leaves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.tensors import open_model
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import FROZEN_FILE, GRAPH_FILE
from moonfed.edge_client.predictor import Predictor
from moonfed.errors import InvalidInput
from moonfed.experiments.child_processes import run
from moonfed.export.binding import bind
from moonfed.export.scoring import Predictor as Session
from moonfed.models.onnx_runtime import SessionSettings, open_session
from tests.support.refusals import refused
from tests.support.session_cache import cached

from .conftest import Federation
from .test_tables import fail

pytestmark = pytest.mark.slow

DEVICES = ("cam-1", "cam-2", "cam-3")


def bundle(*options: str) -> Path:
    settings = ("--set", "batch_size=32", "--set", "epochs=3", "--set", "learning_rate=0.05", "--projection", "none")
    command = ("moonfed-export", "bundle", "--model", "cnn", "--input", "8x8x1", "--classes", "10", *settings, *options)
    return cached(" ".join(command).encode(), lambda path: run(*command, "--output", str(path)))


def personal_file(federation: Federation, device: str, run_: str) -> Path:
    (file,) = (federation.directory / device / "local" / run_).glob("personal.safetensors")
    return file


def contains(directory: Path, values: bytes) -> list[Path]:
    return [file for file in directory.rglob("*") if file.is_file() and values in file.read_bytes()]


def test_frozen_tensors_are_fetched_once_and_personal_ones_never_leave(federation: Federation) -> None:
    federation.serve()
    federation.enrol(*DEVICES)
    for name in DEVICES:
        federation.start_device(name, "--holdout", "0.2")
    federation.until_online(3)
    first = bundle("--freeze", "encoder.0", "--personal", "head")
    federation.start_run(first, "first", "--rounds", "3", "--minimum-devices", "3", "--cohort", "all")
    federation.until_finished("first")
    for name in DEVICES:
        federation.until_log(name, "run first has ended")
    manifest = read_bundle(first).manifest
    # What leaves and what is fetched.
    for name in DEVICES:
        own = personal_file(federation, name, "first")
        values = own.read_bytes()[-256:]
        assert contains(federation.directory / name, values), "the search finds nothing"
        assert contains(federation.state, values) == []
        assert contains(federation.directory / name / "blobs", (first / FROZEN_FILE).read_bytes()[-256:]) == []
    rounds = federation.rounds("first")
    assert all(one.model.size < 1.1 * 4 * sum(spec.size for spec in manifest.tensors) + 4096 for one in rounds)
    assert not any(one.personal_lost for one in rounds)
    different = {personal_file(federation, name, "first").read_bytes() for name in DEVICES}
    assert len(different) == 3
    # Devices score the global model with their own tensors; nobody else has a whole model.
    command = ("moonfed-coordinator", "run", "evaluate", "first", *federation.operator, "--json")
    scores = json.loads(run(*command))["on_devices"]["scores"]
    assert len(scores) == 3
    assert np.mean([one["score"] for one in scores]) > 0.3
    for words in (("onnx", "first", "--output", str(federation.directory / "m.onnx")), ("evaluate", "first")):
        data = ("--data", str(federation.parts / "device-1.npz"))
        assert "run evaluate" in fail("moonfed-export", *words, *data, *federation.operator)
    release_is_personal(federation, first)


def release_is_personal(federation: Federation, made: Path) -> None:
    """Each device predicts with its own tensors, in ONNX Runtime; a central server refuses the model."""
    data = str(federation.parts / "device-1.npz")
    chosen = ("--name", "digits", "--data", data, *federation.operator, "--json")
    assert "variant" in fail("moonfed-export", "release", "create", "first", *chosen, "--variant", "int8")
    created = json.loads(run("moonfed-export", "release", "create", "first", *chosen))
    assert created["variants"] == ["float32"]
    run("moonfed-coordinator", "release", "deploy", "digits", "--version", "1", *federation.operator)
    manifest = read_bundle(made).manifest
    with np.load(data) as arrays:
        inputs = arrays["inputs"][:40]
    model = federation.directory / "model-3.safetensors"
    run("moonfed-coordinator", "run", "weights", "first", *federation.operator, "--round", "3", "--output", str(model))
    found = {}
    for name in DEVICES:
        federation.until_log(name, "version 1 of model digits: installed")
        own = open_model(personal_file(federation, name, "first"), manifest.personal)
        graph = bind((made / GRAPH_FILE).read_bytes(), open_model(model, manifest.tensors), manifest, personal=own)
        with Predictor(federation.directory / name, "digits", threads=1) as predictor:
            found[name] = predictor.predict(inputs)
        assert np.abs(found[name] - Session(graph).predict(inputs)).max() < 1e-5
    assert np.abs(found["cam-1"] - found["cam-2"]).max() > 0.01
    file = federation.directory / "cam-1" / "repository" / "digits" / "1" / "model.onnx"
    assert "on devices only" in fail("moonfed-export", "predict", data, "--file", str(file))
    with refused(InvalidInput, "personal"):
        open_session(file.read_bytes(), SessionSettings())
