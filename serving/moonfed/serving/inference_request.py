"""What goes in and out of the served models, free of any protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOutput:
    """An output that a client wants."""

    name: str
    class_count: int = 0  # more than 0: that many classes, best first, instead of the tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """One inference; `inputs` hold BYTES tensors as object arrays of bytes."""

    model: str
    inputs: Mapping[str, Array]
    version: str = ""  # "": the newest that is ready
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()  # empty: all
    timeout_us: int = 0  # in the queue; 0: the model's default


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """The answer to one request, with its outputs in the order asked for, else in the model's."""

    model: str
    version: str
    id: str
    outputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMetadata:
    """An input or output: its datatype in the protocol's words ("FP32"), its shape with -1 for any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # the batch dimension included


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """What a client has to know to ask a model."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A model's version in the repository's index; a model of which no version is known has version ""."""

    name: str
    version: str
    state: str  # "READY", "UNAVAILABLE", "LOADING", "UNLOADING"; "" if nobody asked for it
    reason: str
