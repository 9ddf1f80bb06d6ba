"""A tiny model of three classes, and releases of it to a model repository."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.release.repository import ModelDirectory, ModelRelease
from moonfed.release.triton_config import read_interface

CLASSES = ("cat", "dog", "fish")


def graph(scale: float = 1.0, *, batch: int | str = "batch", side: int | str = 4, doubled: bool = False) -> bytes:
    """Build a model of three classes that depends only on a corner of the image."""
    kind = onnx.TensorProto.DOUBLE if doubled else onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node("Cast", ["inputs"], ["cast"], to=kind),
        onnx.helper.make_node("ReduceMean", ["cast", "axes"], ["mean"], keepdims=0),
        onnx.helper.make_node("Mul", ["mean", "scale"], ["scaled"]),
        onnx.helper.make_node("Softmax", ["scaled"], ["probabilities"], axis=1),
    ]
    dtype = np.float64 if doubled else np.float32
    held = [
        onnx.numpy_helper.from_array(np.array([1, 2], dtype=np.int64), "axes"),
        onnx.numpy_helper.from_array(np.array([scale], dtype=dtype), "scale"),
    ]
    made = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("inputs", onnx.TensorProto.UINT8, [batch, side, 5, 3])],
        [onnx.helper.make_tensor_value_info("probabilities", kind, [batch, 3])],
        held,
    )
    opset = [onnx.helper.make_opsetid("", 20)]
    return onnx.helper.make_model(made, opset_imports=opset, ir_version=10).SerializeToString(deterministic=True)


def release(content: bytes, classes: Sequence[str] = CLASSES, **others: bytes) -> ModelRelease:
    files = {"model.onnx": content, **{name.replace("_", "."): text for name, text in others.items()}}
    return ModelRelease(interface=read_interface(content, "g.onnx"), classes=tuple(classes), files=files)


def read_config(directory: ModelDirectory) -> model_config_pb2.ModelConfig:
    return text_format.Parse((directory.path / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def contents(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }
