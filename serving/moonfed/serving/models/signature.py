"""A model's inputs and outputs, and Triton's messages for requests that do not fit them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.serving.models.config import Config, tensor_metadata
from moonfed.serving.models.inference_request import Array, InferRequest, TensorMetadata
from moonfed.serving.models.tensor_codec import DTYPES, datatype_of, format_shape, request_prefix

_BATCH_NOTE = (
    "NOTE: max_batch_size is not zero in the model's configuration, so each input's shape begins with the batch "
    "dimension, which the dims there leave out."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpectedInput:
    dtype: np.dtype[np.generic]
    datatype: str
    dims: tuple[int, ...]  # without the batch dimension; -1 for any length
    fixed: bool  # no -1 in `dims`

    def fits(self, dims: tuple[int, ...]) -> bool:
        if self.fixed:
            return dims == self.dims
        return len(dims) == len(self.dims) and all(
            expected in (-1, length) for expected, length in zip(self.dims, dims, strict=True)
        )


class ModelSignature:
    """The inputs and outputs of a completed config."""

    def __init__(self, config: Config) -> None:
        self.model = str(config.name)
        self.max_batch_size = int(config.max_batch_size)
        self._batched = self.max_batch_size > 0
        self.inputs = tuple(tensor_metadata(each, batched=self._batched) for each in config.input)
        self.outputs = tuple(tensor_metadata(each, batched=self._batched) for each in config.output)
        self.output_names = tuple(each.name for each in self.outputs)
        self._expected = {each.name: self._expect(each) for each in self.inputs}

    def _expect(self, spec: TensorMetadata) -> _ExpectedInput:
        dims = spec.shape[1:] if self._batched else spec.shape
        return _ExpectedInput(dtype=DTYPES[spec.datatype], datatype=spec.datatype, dims=dims, fixed=-1 not in dims)

    def samples(self, request: InferRequest) -> int:
        """Return how many samples a request has, 1 without batching; raise InvalidInput if its inputs do not fit."""
        batched = self._batched
        samples: int | None = None
        if len(request.inputs) != len(self._expected):
            raise self._mismatch(request)
        for name, array in request.inputs.items():
            expected = self._expected.get(name)
            shape = array.shape
            if expected is None or array.dtype != expected.dtype or (batched and not shape):
                raise self._mismatch(request)
            if batched:
                samples = shape[0] if samples is None else samples
                if shape[0] != samples:
                    raise self._mismatch(request)
                shape = shape[1:]
            if not expected.fits(shape):
                raise self._mismatch(request)
        if samples is None:
            return 1
        if not 0 < samples <= self.max_batch_size:
            raise self._mismatch(request)
        return samples

    def names(self, request: InferRequest) -> tuple[str, ...]:
        """Return the outputs to compute in the requested order; raise InvalidInput for an unknown one, or too many."""
        if not request.outputs:
            return self.output_names
        if len(request.outputs) > len(self.output_names):  # each would be a copy
            raise InvalidInput(
                f"{len(request.outputs)} inference outputs are requested of model '{self.model}', "
                f"which has {len(self.output_names)}"
            )
        for each in request.outputs:
            if each.name not in self.output_names:
                raise InvalidInput(f"unexpected inference output '{each.name}' for model '{self.model}'")
        return tuple(each.name for each in request.outputs)

    def _mismatch(self, request: InferRequest) -> InvalidInput:
        """Explain why a request does not fit, checking in Triton's order."""
        prefix, inputs = request_prefix(request.id), request.inputs
        if len(inputs) != len(self._expected):
            return InvalidInput(prefix + self._wrong_count(inputs))
        for name in inputs:
            if name not in self._expected:
                return InvalidInput(f"unexpected inference input '{name}' for model '{self.model}'")
        if self._batched and (reason := self._wrong_batch(inputs)):
            return InvalidInput(prefix + reason)
        return InvalidInput(prefix + self._wrong_tensor(inputs))

    def _wrong_count(self, inputs: Mapping[str, Array]) -> str:
        got = ",".join(f"'{name}'" for name in inputs)
        missing = ",".join(f"'{name}'" for name in self._expected if name not in inputs)
        return (
            f"expected {len(self._expected)} inputs but got {len(inputs)} inputs for model '{self.model}'. "
            f"Got input(s) [{got}], but missing required input(s) [{missing}]. Please provide all required input(s)."
        )

    def _wrong_batch(self, inputs: Mapping[str, Array]) -> str:
        for name, array in inputs.items():
            if not array.shape:
                return f"input '{name}' has no shape but model requires batch dimension for '{self.model}'"
        sizes = {name: array.shape[0] for name, array in inputs.items()}
        first = next(iter(sizes.values()))
        for name, size in sizes.items():
            if size != first:
                return f"input '{name}' batch size does not match other inputs for '{self.model}'"
        if first > self.max_batch_size:
            return f"inference request batch-size must be <= {self.max_batch_size} for '{self.model}'"
        return ""

    def _wrong_tensor(self, inputs: Mapping[str, Array]) -> str:
        for name, array in inputs.items():
            expected = self._expected[name]
            if array.dtype != expected.dtype:
                return (
                    f"inference input '{name}' data-type is '{datatype_of(array)}', but model '{self.model}' "
                    f"expects '{expected.datatype}'"
                )
            if not expected.fits(array.shape[1:] if self._batched else array.shape):
                whole = ((-1,) if self._batched else ()) + expected.dims
                return (
                    f"unexpected shape for input '{name}' for model '{self.model}'. Expected {format_shape(whole)}, "
                    f"got {format_shape(array.shape)}. {_BATCH_NOTE if self._batched else ''}"
                )
        return self._without_samples(inputs)

    def _without_samples(self, inputs: Mapping[str, Array]) -> str:
        name, array = next(iter(inputs.items()))
        count = math.prod(array.shape[1:])
        subject = f"input '{name}' for model '{self.model}'"
        note = f"NOTE: the batch is empty; its size must be from 1 to {self.max_batch_size}."
        if array.dtype == np.object_:
            return f"expected {count} string elements for inference {subject}, got 0 {note}"
        return f"input byte size mismatch for {subject}. Expected {count * array.itemsize}, got 0 {note}"
