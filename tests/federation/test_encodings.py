"""Encodings between real programs: fewer bytes on the wire, the same model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import file_size, model_size, open_model
from moonfed.bundle.files import read_bundle
from moonfed.control.run_settings import RunSettings

from .conftest import Federation

EVERYBODY = ("--rounds", "100", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")
NAMES = ("cam-1", "cam-2")


def test_encoded_runs_learn_the_same_as_a_float32_run(federation: Federation, make_bundle: Callable[..., Path]) -> None:
    bundle = make_bundle("moon", mu=5, epochs=3)
    manifest = read_bundle(bundle).manifest
    federation.serve()
    federation.enrol(*NAMES)
    for name in NAMES:
        federation.start_device(name)
    federation.start_run(bundle, "plain", *EVERYBODY)
    encoded = ("--uplink-encoding", "int8", "--downlink-encoding", "bfloat16+zstd")
    federation.start_run(bundle, "encoded", *EVERYBODY, *encoded)
    federation.start_run(bundle, "rotated", *EVERYBODY, "--uplink-encoding", "rotated4+zstd")
    for run in ("plain", "encoded", "rotated"):
        federation.until(run, lambda seen: seen.round >= 3)
    assert RunSettings.received(federation.show("encoded").settings).uplink_encoding == "int8"
    start, plain, found = (
        federation.global_model(run, number, bundle) for run, number in (("plain", 0), ("plain", 3), ("encoded", 3))
    )
    assert np.linalg.norm(found - plain) < 0.1 * np.linalg.norm(plain - start)
    rotated = federation.global_model("rotated", 3, bundle)
    assert np.linalg.norm(rotated - plain) < 0.3 * np.linalg.norm(plain - start)
    for name in NAMES:
        runs = federation.directory / name / "runs"
        directory = max((runs / "encoded").glob("[0-9]*-1"), key=lambda path: int(path.name.split("-")[0]))
        assert (directory / "encoded_model.safetensors").stat().st_size <= 0.27 * file_size(manifest.tensors)
        lost = open_model(directory / "model_error.safetensors", manifest.parameters)
        assert lost.size == model_size(manifest.parameters)
        assert 0 < abs(lost).max() < 0.01
