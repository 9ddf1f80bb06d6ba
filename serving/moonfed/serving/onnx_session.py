"""ONNX Runtime sessions: providers, inputs and outputs, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.datasets import get_example

from moonfed.errors import Corrupt, InvalidInput, MoonfedError, Unavailable
from moonfed.inspection.graph import require_self_contained
from moonfed.serving.inference_request import Array, TensorMetadata
from moonfed.serving.tensor_codec import bytes_array, from_onnx_type

CPU, CUDA, TENSORRT = "cpu", "cuda", "tensorrt"
_PROVIDERS = {CPU: "CPUExecutionProvider", CUDA: "CUDAExecutionProvider", TENSORRT: "TensorrtExecutionProvider"}
_FALLBACKS = {CPU: (), CUDA: (CPU,), TENSORRT: (CUDA, CPU)}  # for operators that a provider lacks
_FATAL_ONLY = 4  # errors are raised instead of logged


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The provider, device and threads of a session."""

    provider: str = CPU  # "cpu", "cuda" or "tensorrt"
    device: int = 0  # the GPU's number
    intra_op_threads: int = 1  # 0: one per core

    def __post_init__(self) -> None:
        if self.provider not in _PROVIDERS:
            raise InvalidInput(f"provider is {self.provider!r}; it must be one of {', '.join(_PROVIDERS)}")
        if self.intra_op_threads < 0:
            raise InvalidInput(f"intra_op_threads is {self.intra_op_threads}; it must be 0 or more")


class OnnxSession:
    """A loaded model. Its runs may overlap."""

    def __init__(self, graph: bytes, settings: SessionSettings) -> None:
        """Load a graph; raise Unavailable if the provider is missing, MoonfedError if ONNX Runtime fails."""
        _require(settings.provider)
        self._session = _load(graph, settings)
        if _PROVIDERS[settings.provider] not in self._session.get_providers():
            raise Unavailable(
                f"provider is {settings.provider}, which ONNX Runtime could not start here; "
                "is there a GPU, and are the libraries that it needs installed?"
            )
        self.inputs = tuple(_spec(each) for each in self._session.get_inputs())
        self.outputs = tuple(_spec(each) for each in self._session.get_outputs())
        self.run = self._session.run if not self._has_strings() else self._run_with_strings

    def _has_strings(self) -> bool:
        return any(each.datatype == "BYTES" for each in (*self.inputs, *self.outputs))

    def _run_with_strings(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Run a model with string tensors: ONNX Runtime's strings are text, the protocol's are bytes."""
        found = self._session.run(names, {name: _as_text(name, array) for name, array in feeds.items()})
        return [_as_bytes(array) for array in found]


def require_provider(provider: str) -> None:
    """Raise Unavailable unless ONNX Runtime can run a model with the provider."""
    if provider != CPU:  # a listed provider may still lack its libraries
        OnnxSession(Path(get_example("mul_1.onnx")).read_bytes(), SessionSettings(provider=provider))


def _require(provider: str) -> None:
    if _PROVIDERS[provider] not in onnxruntime.get_available_providers():
        available = ", ".join(n for n, known in _PROVIDERS.items() if known in onnxruntime.get_available_providers())
        raise Unavailable(f"provider is {provider}; this ONNX Runtime has only {available}")


def _load(graph: bytes, settings: SessionSettings) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = 1
    providers: list[Any] = []
    for provider in (settings.provider, *_FALLBACKS[settings.provider]):
        on_device = {} if provider == CPU else {"device_id": str(settings.device)}
        providers.append((_PROVIDERS[provider], on_device))
    damage = _damage(graph)
    try:
        # Without enable_fallback=0 it would silently continue on the CPU, here and after a failed run.
        session = onnxruntime.InferenceSession(graph, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's errors share no base class
        message = f"onnx runtime error: {_one_line(error)}"
        if settings.provider == CPU:
            raise MoonfedError(message) from error
        raise Unavailable(f"provider is {settings.provider}, which fails: {message}") from error
    if damage:  # which ONNX Runtime did not mind
        raise damage
    return session


def _damage(graph: bytes) -> Corrupt | None:
    """Return the reason if a graph cannot be inspected; raise InvalidInput if it refers to other files."""
    try:
        require_self_contained(graph)
    except Corrupt as error:
        return error
    return None


def _spec(node: Any) -> TensorMetadata:  # noqa: ANN401
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
        raise MoonfedError(f"onnx runtime error: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """Join the lines of an ONNX Runtime error."""
    return " ".join(str(error).split())
