"""Graphs bound to a model: their origin, and models that do not fit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from moonfed.blobs.tensors import TensorSpec, write_model
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE, Manifest
from moonfed.data.data_set import DataSet
from moonfed.errors import InvalidInput, SchemaMismatch
from moonfed.export.binding import ModelOrigin, bind, bind_file, read_metadata, with_metadata
from moonfed.export.parity import load_model
from moonfed.export.scoring import Predictor
from moonfed.export.self_checks import random_samples
from moonfed.plan.interface import TorchScriptPlan
from moonfed.release.triton_config import read_interface
from tests.export.conftest import SMALL_IMAGE, another_model
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_a_bound_graph_records_its_origin(pictures: Bundle, tmp_path: Path) -> None:
    manifest = pictures.manifest
    write_model(tmp_path / "model", manifest.tensors, [another_model(manifest)])
    origin = ModelOrigin(run="r", round=3, manifest="a" * 64, model="b" * 64)
    found = read_metadata(bind_file(pictures.contents[GRAPH_FILE], tmp_path / "model", manifest, origin))
    assert json.loads(found["target"])["names"] == ["cat", "dog", "bird"]
    assert (found["method"], found["run"], found["round"]) == ("moon", "r", "3")
    assert (found["manifest_sha256"], found["model_sha256"]) == ("a" * 64, "b" * 64)
    assert "-0.0" not in found["preprocessing"]  # minus a mean of none


def test_a_graph_of_another_model_is_rejected(pictures: Bundle) -> None:
    tensors = (*pictures.manifest.tensors, TensorSpec("zebra", (2,), "parameter"))
    manifest = dataclasses.replace(pictures.manifest, tensors=tensors)
    with refused(SchemaMismatch, "tensor", "zebra"):
        bind(pictures.contents[GRAPH_FILE], another_model(manifest), manifest)


READERS: dict[str, Callable[[bytes, Manifest], object]] = {
    "bind": lambda graph, manifest: bind(graph, another_model(manifest), manifest),
    "read_metadata": lambda graph, _: read_metadata(graph),
    "with_metadata": lambda graph, _: with_metadata(graph, {}),
    "Predictor": lambda graph, _: Predictor(graph),
    "read_interface": lambda graph, _: read_interface(graph, "the graph"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_graph_that_names_the_operators_key_is_never_read(
    reader: str, pictures: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----")
    monkeypatch.chdir(tmp_path)
    proto = onnx.ModelProto.FromString(pictures.contents[GRAPH_FILE])
    READERS[reader](proto.SerializeToString(), pictures.manifest)
    stolen = proto.graph.initializer.add(name="stolen", dims=[27], data_type=onnx.TensorProto.UINT8)
    stolen.data_location = onnx.TensorProto.EXTERNAL
    stolen.external_data.add(key="location", value="key.pem")
    with refused(InvalidInput, "external tensor", "stolen"):
        READERS[reader](proto.SerializeToString(), pictures.manifest)


def test_scores_are_accuracy_and_mean_cross_entropy(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model, count = another_model(pictures.manifest), 300  # more than one batch
    inputs = random_samples(SMALL_IMAGE, count)
    labels = np.arange(count) % 3
    samples = DataSet(inputs=inputs, targets=labels, target=pictures.manifest.target)
    load_model(plan, model, pictures.manifest)
    loss, correct = plan.evaluate(torch.from_numpy(inputs), torch.from_numpy(labels)).tolist()
    score = Predictor(bind(pictures.contents[GRAPH_FILE], model, pictures.manifest)).score(samples)
    assert score.value == correct / count
    assert score.metrics["loss"] == pytest.approx(loss / count, rel=1e-5)
