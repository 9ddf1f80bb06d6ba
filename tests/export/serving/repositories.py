"""Model repositories with small real ONNX graphs, as a user would lay them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, CLASSES = 4, 3


def linear(*, seed: int = 0, batch: int | str = "N", classes: int = CLASSES) -> bytes:
    """probabilities [N, 3] = softmax(inputs [N, 4] × weights)."""
    weights = np.random.default_rng(seed).normal(size=(FEATURES, classes)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["inputs", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, [batch, FEATURES])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [batch, classes])]
    return graph(nodes, inputs, outputs, [numpy_helper.from_array(weights, "weights")])


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], initialisers: list[Any] | None = None) -> bytes:
    made = helper.make_graph(nodes, "tested", inputs, outputs, initialisers or [])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def write_model(repository: Path, name: str, version: int, content: bytes, config: str = "") -> Path:
    """NAME/config.pbtxt and NAME/VERSION/model.onnx; returns the model's directory."""
    directory = repository / name
    (directory / str(version)).mkdir(parents=True, exist_ok=True)
    (directory / str(version) / "model.onnx").write_bytes(content)
    (directory / "config.pbtxt").write_text(config)
    return directory


def batch_of(size: int, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(size, FEATURES)).astype(np.float32)
