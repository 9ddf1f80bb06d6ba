"""Requests, responses and metadata of served models, independent of any protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOutput:
    """An output that a client requests."""

    name: str
    class_count: int = 0  # above 0: that many top classes instead of the tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """An inference request; BYTES tensors in `inputs` are object arrays of bytes."""

    model: str
    inputs: Mapping[str, Array]
    version: str = ""  # "": the newest ready version
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()  # empty: all
    timeout_us: int = 0  # maximum time in the queue; 0: the model's default


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """The response to one request, its outputs in the requested order, by default the model's."""

    model: str
    version: str
    id: str
    outputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMetadata:
    """An input or output: its datatype in the protocol's terms ("FP32"), its shape with -1 for any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # including the batch dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """A model's interface, as clients see it."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A model's version in the repository index; a model without known versions has version ""."""

    name: str
    version: str
    state: str  # "READY", "UNAVAILABLE", "LOADING", "UNLOADING"; "" if it was never loaded
    reason: str
