"""A device's own tensors in a released graph."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from moonfed.blobs.tensors import TensorSpec, write_model
from moonfed.bundle.manifest import PERSONAL_PARAMETER
from moonfed.edge_client.inference.onnx_model import OnnxModel, own_tensors
from moonfed.errors import InvalidInput, SchemaMismatch
from moonfed.models.onnx_runtime import SessionSettings, open_session
from tests.support.refusals import refused

WIDTH = 4
SPECS = (TensorSpec("personal.head.weight", (WIDTH, 2), "parameter"),)
INPUTS = np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A product with a personal weight, which is zero in the file."""
    weight = numpy_helper.from_array(np.zeros((WIDTH, 2), np.float32), "head.weight")
    made = helper.make_graph(
        [helper.make_node("MatMul", ["inputs", "head.weight"], ["values"])],
        "g",
        [helper.make_tensor_value_info("inputs", onnx.TensorProto.FLOAT, [None, WIDTH])],
        [helper.make_tensor_value_info("values", onnx.TensorProto.FLOAT, [None, 2])],
        [weight],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    helper.set_model_props(model, {PERSONAL_PARAMETER: '["head.weight"]'})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "model.onnx"


def test_a_device_replaces_personal_tensors_for_as_long_as_the_session_lives(graph: Path, tmp_path: Path) -> None:
    own = np.random.default_rng(0).normal(size=(WIDTH, 2)).astype(np.float32)
    write_model(tmp_path / "own.safetensors", SPECS, [own.ravel()])
    model = OnnxModel(graph, "values", (2,), SessionSettings(), own_tensors(tmp_path / "own.safetensors", SPECS))
    for _ in range(20):
        gc.collect()
        np.full((1 << 16,), np.nan, np.float32)  # what would be read if the values had been freed
        assert np.allclose(model.predict(INPUTS), INPUTS @ own, atol=1e-5)


def test_without_its_own_a_device_uses_those_of_the_file(graph: Path) -> None:
    assert own_tensors(None, SPECS) == {}
    assert not OnnxModel(graph, "values", (2,), SessionSettings()).predict(INPUTS).any()


def test_tensors_of_another_model_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "own.safetensors", [TensorSpec("other", (8,), "parameter")], [np.zeros(8, np.float32)])
    with pytest.raises(SchemaMismatch):
        own_tensors(tmp_path / "own.safetensors", SPECS)


def test_only_devices_run_a_model_with_personal_tensors(graph: Path) -> None:
    with refused(InvalidInput, "personal"):
        open_session(graph.read_bytes(), SessionSettings())
