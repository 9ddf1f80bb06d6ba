"""Frozen and personal tensors on real programs: what is fetched once, and what never leaves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import FROZEN_FILE
from moonfed.experiments.child_processes import run
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
