"""Samples and their predictions in memory that a process shares with its child in the sandbox."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.data.data_set import Inputs
from moonfed.errors import TrainingFailed
from moonfed.sandbox.child_process import ChildProcess
from moonfed.sandbox.messages import encode
from moonfed.sandbox.sandboxed_process import NAME, shared_file

Outputs = npt.NDArray[np.float32]  # [N, …]: probabilities, values or scores


class SharedPredictions:
    """The parent's side: two files, and the command `predict`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """`shape`: of one sample's output."""
        self._shape = shape
        self._inputs, self.samples = shared_file()  # the child inherits `samples`, to read, and `results`, to write
        self.results, self._computed = shared_file()

    def predict(self, child: ChildProcess, inputs: Inputs) -> Outputs:
        """Have a child compute the outputs [N, …] of raw samples [N, …]."""
        size = 4 * len(inputs) * prod(self._shape)
        os.ftruncate(self.results, 0)
        os.ftruncate(self._inputs, max(1, inputs.nbytes))
        os.pwrite(self._inputs, inputs.data, 0)
        child.answer(encode("predict", samples=len(inputs)), "predicted")
        computed = os.pread(self._computed, size + 1, 0)
        if len(computed) != size:
            raise TrainingFailed(f"{NAME} sent invalid results")
        return np.frombuffer(computed, np.float32).reshape(len(inputs), *self._shape)

    def close(self) -> None:
        """Free the memory."""
        for file in (self._inputs, self.samples, self.results, self._computed):
            os.close(file)


def answer(
    predict: Callable[[Inputs], Outputs], spec: InputSpec, file: int, results: int, samples: int
) -> dict[str, Any]:
    """Answer the command in the child: predict for the samples in a file, and write the results to another."""
    memory = mmap.mmap(file, 0, access=mmap.ACCESS_COPY)
    size = samples * int(np.prod(spec.shape))
    inputs = np.frombuffer(memory, np.dtype(spec.dtype), size).reshape(samples, *spec.shape)
    os.pwrite(results, np.ascontiguousarray(predict(inputs)).data, 0)
    return {"kind": "predicted"}
