"""Model repositories with small real ONNX graphs, as a user would lay them out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from moonfed.serving.models.inference_request import Array, InferRequest
from moonfed.serving.models.manager import ModelManager, ServingSettings

FEATURES, CLASSES = 4, 3
BATCHED = "max_batch_size: 8 "
ONE_INSTANCE = "instance_group { kind: KIND_CPU count: 1 } "
INPUT = 'input { name: "inputs" data_type: TYPE_FP32 dims: 4 } '
OUTPUT = 'output { name: "probabilities" data_type: TYPE_FP32 dims: 3 } '
NOT_BATCHING = BATCHED + INPUT + OUTPUT + ONE_INSTANCE

WARM_UP = (
    'model_warmup {{ name: "first" batch_size: {size} count: {count} inputs {{ key: "inputs" value {{ {value} }} }} }}'
)


def linear(*, seed: int = 0, batch: int | str = "N") -> bytes:
    """Build probabilities [N, 3] = softmax(inputs [N, 4] × weights)."""
    weights = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["inputs", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, [batch, FEATURES])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [batch, CLASSES])]
    return graph(nodes, inputs, outputs, [numpy_helper.from_array(weights, "weights")])


def summing() -> bytes:
    """Build total [N, 2] = a [N, K] + b [N, 2] and difference = a - b; only K = 1 and K = 2 broadcast."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"]),
        helper.make_node("Sub", ["a", "b"], ["difference"]),
    ]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", "K"]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 2]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("total", "difference")]
    return graph(nodes, inputs, outputs)


def identity(element_type: int = TensorProto.STRING) -> bytes:
    """Build y [N, 2] = x [N, 2]."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", element_type, ["N", 2])]
    return graph(nodes, inputs, [helper.make_tensor_value_info("y", element_type, ["N", 2])])


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], initialisers: list[Any] | None = None) -> bytes:
    made = helper.make_graph(nodes, "tested", inputs, outputs, initialisers or [])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def write_model(repository: Path, name: str, version: int, content: bytes, config: str = NOT_BATCHING) -> Path:
    """Write NAME/config.pbtxt and NAME/VERSION/model.onnx atomically; return the model's directory."""
    directory = repository / name
    (directory / str(version)).mkdir(parents=True, exist_ok=True)
    put(directory / str(version) / "model.onnx", content)
    put(directory / "config.pbtxt", config.encode())
    return directory


def put(path: Path, content: bytes) -> None:
    """Replace a file by a new one, with a new inode, if its content differs."""
    if not path.exists() or path.read_bytes() != content:
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(content)
        os.replace(temporary, path)


def serve(repository: Path, **settings: Any) -> ModelManager:
    return ModelManager(repository, ServingSettings(**settings))


def serve_linear(repository: Path, config: str, content: bytes | None = None) -> ModelManager:
    """Serve one version of the linear model, or of another graph, under this config."""
    write_model(repository, "linear", 1, linear() if content is None else content, config)
    models = serve(repository, explicit=True)
    models.load("linear")
    return models


def ask(model: str, inputs: Array, **others: Any) -> InferRequest:
    return InferRequest(model=model, inputs={"inputs": inputs}, **others)


def batch_of(size: int, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(size, FEATURES)).astype(np.float32)


def directly(content: bytes, feeds: dict[str, Array]) -> list[Array]:
    """Run ONNX Runtime without a server."""
    session: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def starts(provider: str) -> bool:
    """Return whether ONNX Runtime can use the provider on this machine."""
    if provider not in onnxruntime.get_available_providers():
        return False
    session: Any = onnxruntime.InferenceSession(linear(), providers=[provider, "CPUExecutionProvider"])
    return provider in session.get_providers()
