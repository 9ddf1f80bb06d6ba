"""ONNX Runtime sessions with the inputs, outputs and strings of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moonfed.errors import InvalidInput, MoonfedError
from moonfed.models.onnx_runtime import SessionSettings, error_text, open_session
from moonfed.serving.models.inference_request import Array, TensorMetadata
from moonfed.serving.models.tensor_codec import bytes_array, from_onnx_type


class OnnxSession:
    """A loaded model. Its runs may overlap."""

    def __init__(self, graph: bytes, settings: SessionSettings) -> None:
        """Load a graph; raise Unavailable if the provider is missing, MoonfedError if ONNX Runtime fails."""
        self._session = open_session(graph, settings)
        self.inputs = tuple(_spec(each) for each in self._session.get_inputs())
        self.outputs = tuple(_spec(each) for each in self._session.get_outputs())
        self.run = self._session.run if not self._has_strings() else self._run_with_strings

    def _has_strings(self) -> bool:
        return any(each.datatype == "BYTES" for each in (*self.inputs, *self.outputs))

    def _run_with_strings(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run a model with string tensors: ONNX Runtime's strings are text, the protocol's are bytes."""
        found = self._session.run(names, {name: _as_text(name, array) for name, array in feeds.items()})
        return [_as_bytes(array) for array in found]


def _spec(node: Any) -> TensorMetadata:
    if not node.type.startswith("tensor("):
        advice = "; convert scikit-learn's classifiers with zipmap=False" if "map(" in node.type else ""
        raise InvalidInput(f"'{node.name}' of the graph has ONNX type {node.type!r}; it must be a tensor{advice}")
    shape = tuple(length if isinstance(length, int) else -1 for length in node.shape)
    return TensorMetadata(name=node.name, datatype=from_onnx_type(node.type), shape=shape)


def _as_text(name: str, array: Array) -> Array:
    if array.dtype != np.object_:
        return array
    try:
        texts = [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"input '{name}' is not UTF-8: {error}") from error
    flat = np.empty(len(texts), dtype=np.object_)
    flat[:] = texts
    return flat.reshape(array.shape)


def _as_bytes(array: Array) -> Array:
    if array.dtype != np.object_:
        return array
    return bytes_array([text.encode() for text in array.ravel()]).reshape(array.shape)


def run_session(session: OnnxSession, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """Compute the named outputs; raise MoonfedError if ONNX Runtime fails."""
    try:
        return session.run(names, feeds)
    except MoonfedError:
        raise
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise MoonfedError(error_text(error)) from error
