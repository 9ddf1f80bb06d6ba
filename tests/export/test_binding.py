"""Graphs bound to a model: their origin, and models that do not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.bundle import Bundle
from moonfed.errors import SchemaMismatch
from moonfed.export.binding import ModelOrigin, bind, bind_file, read_metadata
from moonfed.export.parity import load_model
from moonfed.export.scoring import Predictor
from moonfed.export.self_checks import random_samples
from moonfed.manifest import GRAPH_FILE
from moonfed.plan import TorchScriptPlan
from moonfed.tensors import TensorSpec, write_model
from tests.export.conftest import SMALL_IMAGE, another_model


def test_a_bound_graph_records_its_origin(pictures: Bundle, tmp_path: Path) -> None:
    manifest = pictures.manifest
    write_model(tmp_path / "model", manifest.tensors, [another_model(manifest)])
    origin = ModelOrigin(run="r", round=3, manifest="a" * 64, model="b" * 64)
    found = read_metadata(bind_file(pictures.contents[GRAPH_FILE], tmp_path / "model", manifest, origin))
    assert json.loads(found["classes"]) == ["cat", "dog", "bird"]
    assert (found["method"], found["run"], found["round"]) == ("moon", "r", "3")
    assert (found["manifest_sha256"], found["model_sha256"]) == ("a" * 64, "b" * 64)
    assert "-0.0" not in found["preprocessing"]  # minus a mean of none


def test_a_graph_of_another_model_is_rejected(pictures: Bundle) -> None:
    tensors = (*pictures.manifest.tensors, TensorSpec("zebra", (2,), "parameter"))
    manifest = dataclasses.replace(pictures.manifest, tensors=tensors)
    with pytest.raises(SchemaMismatch, match=r"tensor 'zebra' of shape \[2\] has no place in the ONNX graph"):
        bind(pictures.contents[GRAPH_FILE], another_model(manifest), manifest)


def test_scores_are_accuracy_and_mean_cross_entropy(pictures: Bundle, plan: TorchScriptPlan) -> None:
    model, count = another_model(pictures.manifest), 300  # more than one batch
    inputs = random_samples(SMALL_IMAGE, count)
    labels = np.arange(count) % 3
    load_model(plan, model, pictures.manifest)
    loss, correct = plan.evaluate(torch.from_numpy(inputs), torch.from_numpy(labels)).tolist()
    score = Predictor(bind(pictures.contents[GRAPH_FILE], model, pictures.manifest)).score(inputs, labels)
    assert score.accuracy == correct / count
    assert score.loss == pytest.approx(loss / count, rel=1e-5)
