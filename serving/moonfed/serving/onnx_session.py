"""One ONNX Runtime session: its providers, its inputs and outputs, its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.datasets import get_example

from moonfed.errors import InvalidInput, MoonfedError, Unavailable
from moonfed.serving.inference_request import Array, TensorMetadata
from moonfed.serving.tensor_codec import bytes_array, from_onnx_type

CPU, CUDA, TENSORRT = "cpu", "cuda", "tensorrt"
_PROVIDERS = {CPU: "CPUExecutionProvider", CUDA: "CUDAExecutionProvider", TENSORRT: "TensorrtExecutionProvider"}
_FALLING_BACK_TO = {CPU: (), CUDA: (CPU,), TENSORRT: (CUDA, CPU)}  # for the operators that a provider does not have
_FATAL_ONLY = 4  # errors are told to whoever asked


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Where a session runs, and with how many threads."""

    provider: str = CPU  # "cpu", "cuda" or "tensorrt"
    device: int = 0  # the GPU's number
    intra_op_threads: int = 1  # 0: as many as there are cores

    def __post_init__(self) -> None:
        if self.provider not in _PROVIDERS:
            raise InvalidInput(f"provider is {self.provider!r}; it must be one of {', '.join(_PROVIDERS)}")
        if self.intra_op_threads < 0:
            raise InvalidInput(f"intra_op_threads is {self.intra_op_threads}; it must be 0 or more")


class OnnxSession:
    """A model file that is loaded. Its runs may overlap."""

    def __init__(self, path: Path, settings: SessionSettings) -> None:
        """Raises Unavailable if the provider is missing, MoonfedError if ONNX Runtime cannot load the file."""
        _require(settings.provider)
        self._session = _load(path, settings)
        if _PROVIDERS[settings.provider] not in self._session.get_providers():
            raise Unavailable(
                f"provider {settings.provider} is wanted, but ONNX Runtime could not start it here; "
                "is there a GPU, and are the libraries that it needs installed?"
            )
        self.inputs = tuple(_spec(each) for each in self._session.get_inputs())
        self.outputs = tuple(_spec(each) for each in self._session.get_outputs())
        self.run = self._session.run if not self._has_strings() else self._run_with_strings

    def _has_strings(self) -> bool:
        return any(each.datatype == "BYTES" for each in (*self.inputs, *self.outputs))

    def _run_with_strings(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """ONNX Runtime's strings are text, the protocol's are bytes."""
        found = self._session.run(names, {name: _as_text(name, array) for name, array in feeds.items()})
        return [_as_bytes(array) for array in found]


def require_provider(provider: str) -> None:
    """Raises Unavailable unless ONNX Runtime runs models there."""
    if provider != CPU:  # that a provider is known does not say that its libraries are there
        OnnxSession(Path(get_example("mul_1.onnx")), SessionSettings(provider=provider))


def _require(provider: str) -> None:
    if _PROVIDERS[provider] not in onnxruntime.get_available_providers():
        there = ", ".join(name for name, known in _PROVIDERS.items() if known in onnxruntime.get_available_providers())
        raise Unavailable(f"provider {provider} is wanted, but this ONNX Runtime has only {there}")


def _load(path: Path, settings: SessionSettings) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = 1
    providers: list[Any] = []
    for provider in (settings.provider, *_FALLING_BACK_TO[settings.provider]):
        on_device = {} if provider == CPU else {"device_id": str(settings.device)}
        providers.append((_PROVIDERS[provider], on_device))
    try:
        # Otherwise it would go on with the CPU by itself, here and after a run that failed.
        return onnxruntime.InferenceSession(str(path), options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's errors have no base class of their own
        about = f"onnx runtime error: {_one_line(error)}"
        if settings.provider == CPU:
            raise MoonfedError(about) from error
        raise Unavailable(f"provider {settings.provider} is wanted, but with it: {about}") from error


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


def run(session: OnnxSession, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """A run of ONNX Runtime; raises MoonfedError if it fails."""
    try:
        return session.run(names, feeds)
    except MoonfedError:
        raise
    except Exception as error:  # onnxruntime's errors have no base class of their own
        raise MoonfedError(f"onnx runtime error: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """An error of ONNX Runtime as one sentence."""
    return " ".join(str(error).split())
