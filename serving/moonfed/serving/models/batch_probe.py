"""The check that decides whether a model may run several requests together: answers must be those of each alone.

A graph with a free first dimension may still use it for time, compute statistics over the batch, or return rows that
depend on the data. Only running it shows that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moonfed.errors import MoonfedError
from moonfed.serving.models.inference_request import Array, TensorMetadata
from moonfed.serving.models.onnx_session import OnnxSession, run_session
from moonfed.serving.models.tensor_codec import BYTES, DTYPES, bytes_array

PAIRS = 4  # of samples, each at another scale
FREE_LENGTHS = (8, 32, 1, 224)  # tried in turn for the dimensions that a graph leaves open
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # of float32 outputs: far above what the order of additions changes
HALF = 1e-2  # relative, of float16 outputs


def batching_problem(session: OnnxSession) -> str:
    """Return why the answers of a batch differ from those of its samples alone; empty if they do not.

    Runs two singles and a batch of both, for several pairs of random samples.
    """
    problem = ""
    for length in FREE_LENGTHS:
        try:
            return _first_difference(session, length)
        except MoonfedError as error:
            problem = f"it fails with random inputs: {error}"
        if not any(-1 in each.shape[1:] for each in session.inputs):
            break
    return problem


def _first_difference(session: OnnxSession, length: int) -> str:
    names = [each.name for each in session.outputs]
    generator = np.random.default_rng(0)
    for scale in range(PAIRS):
        pair = {each.name: _pair(each, length, scale, generator) for each in session.inputs}
        both = run_session(session, names, pair)
        singles = [{name: array[row : row + 1] for name, array in pair.items()} for row in (0, 1)]
        alone = [run_session(session, names, single) for single in singles]
        for name, of_both, first, second in zip(names, both, *alone, strict=True):
            if not _agree(of_both, [first, second]):
                return f"output '{name}' of two samples differs from that of each alone"
    return ""


def _pair(tensor: TensorMetadata, length: int, scale: int, generator: np.random.Generator) -> Array:
    """Return two samples: numbers from 0 to 1, or larger and signed ones; small integers, which may be indices."""
    shape = (2, *(length if side == -1 else side for side in tensor.shape[1:]))
    if tensor.datatype == BYTES:
        count = int(np.prod(shape))
        return bytes_array([b"%d" % number for number in range(count)]).reshape(shape)
    dtype = DTYPES[tensor.datatype]
    if np.issubdtype(dtype, np.floating):
        drawn = generator.random(shape) if scale % 2 == 0 else generator.standard_normal(shape)
        return (drawn * 4.0 ** (scale // 2)).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def _agree(of_both: Array, alone: Sequence[Array]) -> bool:
    if any(one.ndim == 0 or len(one) != 1 for one in alone) or of_both.ndim == 0 or len(of_both) != 2:
        return False
    if of_both.shape[1:] != alone[0].shape[1:] or of_both.shape[1:] != alone[1].shape[1:]:
        return False
    expected = np.concatenate(alone)
    if not np.issubdtype(of_both.dtype, np.floating):
        return bool(np.array_equal(of_both, expected))
    relative = HALF if of_both.dtype == np.float16 else RELATIVE
    return bool(np.allclose(of_both, expected, rtol=relative, atol=ABSOLUTE, equal_nan=True))
