"""Releases on our server: it serves the repository unchanged and follows new versions and roll-backs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from moonfed.data.npz import NpzSource
from moonfed.export.coordinator_client import connect
from moonfed.release.follow import Decision, FollowGate, ReleaseFollower
from moonfed.release.repository import ModelDirectory
from moonfed.serving.models.manager import ModelManager, ServingSettings
from moonfed.transport.operator_connection import Endpoint
from tests.release.test_follow import good
from tests.release.test_publish import published
from tests.support.control_service import Control
from tests.support.server_process import served
from tests.support.trained_model import CLASSES, Trained

pytestmark = pytest.mark.slow


def test_a_published_run_matches_onnx_runtime(trained_run: Control, trained: Trained, tmp_path: Path) -> None:
    models = tmp_path / "models"
    assert published(trained_run, trained, models).returncode == 0
    batch = trained.test.inputs[:5]
    given = InferInput("inputs", list(batch.shape), "UINT8")
    given.set_data_from_numpy(batch)
    with served(models, tmp_path / "log") as server, closing(InferenceServerClient(server.grpc)) as client:
        assert client.is_model_ready("digits", "1")
        config = client.get_model_config("digits").config
        found = client.infer("digits", [given]).as_numpy("probabilities")
        named = client.infer("digits", [given], outputs=[InferRequestedOutput("probabilities", class_count=1)])
    assert (config.max_batch_size, config.output[0].label_filename) == (32, "labels.txt")
    session = onnxruntime.InferenceSession(
        str(models / "digits" / "1" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(["probabilities"], {"inputs": batch})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    labels = [entry.decode().split(":")[2] for entry in named.as_numpy("probabilities").reshape(-1)]
    assert labels == [CLASSES[i] for i in np.asarray(expected).argmax(axis=1)]


def test_a_server_follows_published_versions_and_roll_backs(control: Control, trained: Trained, tmp_path: Path) -> None:
    directory = ModelDirectory(tmp_path / "models", "digits")
    decisions: list[Decision] = []
    with connect(Endpoint(control.address, None)) as runs:
        follower = ReleaseFollower(
            runs, "r", directory, FollowGate(data=NpzSource(trained.test_file)), on_decision=decisions.append
        )
        control.commit(good(trained, 1))
        follower.catch_up()
        with closing(ModelManager(tmp_path / "models", ServingSettings(poll_seconds=0))) as models:

            def serves() -> list[str]:
                models.poll()
                return [entry.version for entry in models.index(ready_only=True) if entry.name == "digits"]

            assert serves() == ["1"]
            control.commit(good(trained, 2))
            follower.catch_up()
            assert serves() == ["2"]
            directory.roll_back()
            assert serves() == ["1"]
            follower.catch_up()
            assert serves() == ["1"]
            control.commit(good(trained, 3))
            follower.catch_up()
            assert serves() == ["3"]
    assert all(found.published for found in decisions)
