"""Warm-up: runs that a config requests before a model is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from moonfed.errors import InvalidInput
from moonfed.serving.models.config import Config
from moonfed.serving.models.inference_request import Array
from moonfed.serving.models.onnx_session import OnnxSession, run_session
from moonfed.serving.models.tensor_codec import BYTES, DTYPES, bytes_array, decode, from_config_type

ReadFile = Callable[[str], bytes]


def warm_up(session: OnnxSession, config: Config, read: ReadFile) -> None:
    """Run each sample of a config's model_warmup; raise InvalidInput, or the run's exception.

    `read` returns the content of a file of warm-up data.
    """
    names = [each.name for each in config.output]
    for sample in config.model_warmup:
        if sample.batch_size == 0:  # like Triton, which skips it
            continue
        feeds = {
            name: _repeated(_sample(each, name, config, read), sample.batch_size, batched=config.max_batch_size > 0)
            for name, each in sample.inputs.items()
        }
        for _ in range(sample.count or 1):
            run_session(session, names, feeds)


def _repeated(one: Array, batch_size: int, *, batched: bool) -> Array:
    return np.repeat(one[np.newaxis], batch_size, axis=0) if batched else one


def _sample(written: Any, name: str, config: Config, read: ReadFile) -> Array:
    """Return one sample of an input, without the batch dimension."""
    datatype = _datatype(written, name, config)
    dims = tuple(written.dims)
    if min(dims, default=0) < 0:
        raise InvalidInput(f"warmup setting expects all variable-size dimensions are specified for input '{name}'")
    if written.WhichOneof("input_data_type") == "input_data_file":
        return decode(read(written.input_data_file), datatype, dims, name=name, model=config.name)
    if datatype == BYTES:
        return bytes_array([b""] * int(np.prod(dims))).reshape(dims)
    dtype = DTYPES[datatype]
    if written.WhichOneof("input_data_type") == "random_data":
        return _random(dtype, dims)
    return np.zeros(dims, dtype)


def _datatype(written: Any, name: str, config: Config) -> str:
    from_config = {each.name: each.data_type for each in config.input}
    if name not in from_config:
        raise InvalidInput(f"model_warmup of '{config.name}' has input '{name}'; it must be one of {list(from_config)}")
    if written.data_type != from_config[name]:
        wrong, right = (model_config_pb2.DataType.Name(each) for each in (written.data_type, from_config[name]))
        raise InvalidInput(f"model_warmup of '{config.name}' has {wrong} for input '{name}'; it must be {right}")
    return from_config_type(model_config_pb2.DataType.Name(written.data_type))


def _random(dtype: np.dtype[np.generic], dims: tuple[int, ...]) -> Array:
    generator = np.random.default_rng(0)
    if np.issubdtype(dtype, np.floating):
        return generator.random(dims).astype(dtype)
    return generator.integers(0, 2, dims).astype(dtype)  # small, since they may be indices
