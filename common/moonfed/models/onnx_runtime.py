"""ONNX Runtime sessions on a chosen provider. Nothing falls back to another provider.

Only import this module where onnxruntime is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import moonfed.models.no_telemetry  # noqa: F401 - before onnxruntime

# isort: split
import onnxruntime
from onnxruntime.datasets import get_example

from moonfed.bundle.manifest import PERSONAL_ONLY, PERSONAL_PARAMETER
from moonfed.errors import InvalidInput, MoonfedError, Unavailable
from moonfed.plan.inspection.graph import require_self_contained

CPU = "cpu"
CUDA = "cuda"
TENSORRT = "tensorrt"
_PROVIDERS = {CPU: "CPUExecutionProvider", CUDA: "CUDAExecutionProvider", TENSORRT: "TensorrtExecutionProvider"}
_FALLBACKS = {CPU: (), CUDA: (CPU,), TENSORRT: (CUDA, CPU)}  # for operators that a provider lacks
_FATAL_ONLY = 4  # errors are raised instead of logged
ONNX_FORMAT = ("session.load_model_format", "ONNX")  # not ONNX Runtime's own format, which is not inspected


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The provider, device and threads of a session."""

    provider: str = CPU  # "cpu", "cuda" or "tensorrt"
    device: int = 0  # the GPU's number
    intra_op_threads: int = 1  # 0: one per core

    def __post_init__(self) -> None:
        if self.provider not in _PROVIDERS:
            raise InvalidInput(field="provider", value=self.provider, allowed=f"one of {', '.join(_PROVIDERS)}")
        if self.intra_op_threads < 0:
            raise InvalidInput(field="intra_op_threads", value=self.intra_op_threads, allowed="0 or more")


def open_session(
    graph: bytes, settings: SessionSettings, own: Mapping[str, npt.NDArray[np.float32]] | None = None
) -> Any:  # noqa: ANN401
    """Return an InferenceSession of a graph that refers to no other file.

    `own`: a device's tensors, which replace the graph's of that name; None: a graph with personal tensors is refused.
    Raises Unavailable if the provider is missing or fails, InvalidInput or Corrupt for a graph that cannot be accepted,
    MoonfedError if ONNX Runtime rejects it.
    """
    _require(settings.provider)
    session = _load(graph, settings, own or {})
    if _PROVIDERS[settings.provider] not in session.get_providers():
        raise Unavailable(
            f"provider is {settings.provider}, which ONNX Runtime could not start here; is there a GPU, and are the "
            "libraries that it needs installed?",
            field="provider",
            value=settings.provider,
        )
    if own is None and PERSONAL_PARAMETER in session.get_modelmeta().custom_metadata_map:
        raise InvalidInput(PERSONAL_ONLY, field="personal")
    return session


def require_provider(provider: str) -> None:
    """Raise Unavailable unless ONNX Runtime can run a model with the provider."""
    if provider != CPU:  # a listed provider may still lack its libraries
        open_session(Path(get_example("mul_1.onnx")).read_bytes(), SessionSettings(provider=provider))


def error_text(error: Exception) -> str:
    """Return an ONNX Runtime error as one line."""
    return f"onnx runtime error: {' '.join(str(error).split())}"


def _require(provider: str) -> None:
    if _PROVIDERS[provider] not in onnxruntime.get_available_providers():
        available = ", ".join(n for n, known in _PROVIDERS.items() if known in onnxruntime.get_available_providers())
        raise Unavailable(
            f"provider is {provider}; this ONNX Runtime has only {available}", field="provider", value=provider
        )


def _load(graph: bytes, settings: SessionSettings, own: Mapping[str, npt.NDArray[np.float32]]) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry(*ONNX_FORMAT)
    providers: list[Any] = []
    for provider in (settings.provider, *_FALLBACKS[settings.provider]):
        on_device = {} if provider == CPU else {"device_id": str(settings.device)}
        providers.append((_PROVIDERS[provider], on_device))
    require_self_contained(graph)
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for name, tensor in own.items()}
    for name, value in values.items():
        options.add_initializer(name, value)
    try:
        # Without enable_fallback=0 it would silently continue on the CPU, here and after a failed run.
        session = onnxruntime.InferenceSession(graph, options, providers=providers, enable_fallback=0)
        session.own_values = values  # ONNX Runtime reads them in each run, and does not keep them itself
    except Exception as error:  # ONNX Runtime's errors share no base class
        if settings.provider == CPU:
            raise MoonfedError(error_text(error)) from error
        raise Unavailable(
            f"provider is {settings.provider}, which fails: {error_text(error)}",
            field="provider",
            value=settings.provider,
        ) from error
    return session
