"""A real Triton serves the output of `moonfed-export repository` unchanged, with moonfed's results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from google.protobuf import text_format
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput, model_config_pb2
from tritonclient.utils import InferenceServerException

from moonfed.release.repository import ModelDirectory
from tests.release.test_publish import published
from tests.support.control_service import Control
from tests.support.gates import until
from tests.support.server_process import Server, served
from tests.support.trained_model import CLASSES, Trained
from tests.support.triton import triton

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A published run, and the addresses of both servers."""

    repository: Path
    triton: Server
    ours: Server

    def clients(self) -> list[InferenceServerClient]:
        return [InferenceServerClient(each.grpc) for each in (self.triton, self.ours)]


@pytest.fixture(scope="module")
def both(trained_run: Control, trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    work = tmp_path_factory.mktemp("released")
    assert published(trained_run, trained, work / "models").returncode == 0
    polling = ["--model-control-mode=poll", "--repository-poll-secs=1"]
    with (
        served(work / "models", work / "ours.log", "--poll-seconds", "0.1") as ours,
        triton(work / "models", work, *polling) as theirs,
    ):
        yield Served(repository=work / "models", triton=theirs, ours=ours)


@pytest.mark.parametrize("count", [1, 5, 32])
def test_both_servers_match_onnx_runtime_bit_for_bit_and_name_classes(
    both: Served, trained: Trained, count: int
) -> None:
    batch = trained.test.inputs[:count]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = both.repository / "digits" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(["probabilities"], {"inputs": batch})
    given = InferInput("inputs", list(batch.shape), "UINT8").set_data_from_numpy(batch)
    named = [InferRequestedOutput("probabilities", class_count=len(CLASSES))]
    told = []
    for client in both.clients():
        with client:
            assert client.infer("digits", [given]).as_numpy("probabilities").tobytes() == expected.tobytes()
            told.append(client.infer("digits", [given], outputs=named).as_numpy("probabilities"))
    assert told[0].tolist() == told[1].tolist()
    best = [entry.decode().split(":")[2] for entry in told[0][:, 0]]
    assert best == [CLASSES[index] for index in np.asarray(expected).argmax(axis=1)]


def test_both_servers_use_the_configuration_unchanged(both: Served) -> None:
    text = (both.repository / "digits" / "config.pbtxt").read_text()
    written = text_format.Parse(text, model_config_pb2.ModelConfig())
    for client in both.clients():
        with client:
            found = client.get_model_config("digits").config
        for field in ("name", "backend", "max_batch_size", "input", "output", "version_policy", "model_warmup"):
            assert getattr(found, field) == getattr(written, field), field
        found.dynamic_batching.ClearField("preferred_batch_size")  # which Triton completes
        assert found.dynamic_batching == written.dynamic_batching
        assert found.instance_group[0].count == written.instance_group[0].count
    before_it_was_up = both.triton.log.partition("Started HTTPService")[0]
    assert re.findall("ran digits:1 ([0-9]+)", before_it_was_up).count("32") == written.instance_group[0].count


def test_both_servers_reject_too_large_a_batch(both: Served) -> None:
    told = []
    for client in both.clients():
        given = InferInput("inputs", [33, 8, 8, 1], "UINT8").set_data_from_numpy(np.zeros((33, 8, 8, 1), np.uint8))
        with client, pytest.raises(InferenceServerException) as caught:
            client.infer("digits", [given])
        told.append((caught.value.status(), caught.value.message()))
    assert told[0] == told[1]
    assert "batch-size must be <= 32 for 'digits'" in told[0][1]


def test_both_servers_follow_new_versions_and_roll_backs(both: Served, trained_run: Control, trained: Trained) -> None:
    def serve(version: str) -> None:
        for client in both.clients():
            with client:
                until(partial(serves_only, client, version))

    serve("1")
    assert published(trained_run, trained, both.repository, "--version", "2").returncode == 0
    serve("2")
    ModelDirectory(both.repository, "digits").roll_back()
    serve("1")


def serves_only(client: InferenceServerClient, version: str) -> bool:
    found = client.get_model_repository_index().models
    return [entry.version for entry in found if entry.state == "READY"] == [version]
