"""A released plan in a sandboxed process, for callers in any thread."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from moonfed.data.data_set import Inputs
from moonfed.edge_client.agent.model_process import model_process
from moonfed.edge_client.agent.sandboxed_process import NAME, JobDirectory, shared_file
from moonfed.edge_client.inference.model import Probabilities
from moonfed.edge_client.inference.settings import InferenceSettings
from moonfed.edge_client.state.model_files import ModelFiles
from moonfed.edge_client.worker.messages import encode
from moonfed.errors import TrainingFailed, WrongState


class SandboxedModel:
    """A model in a process, which is started when the model is loaded and ends with `close`."""

    def __init__(self, model: ModelFiles, state: Path, settings: InferenceSettings) -> None:
        """Start the process; `state`: the device's state directory, which it must not read."""
        self._classes = len(model.classes)
        self._inputs, self._readable = shared_file()
        self._results, self._computed = shared_file()
        self._root = TemporaryDirectory(prefix="moonfed-")
        self._directory = JobDirectory(Path(self._root.name), state)
        self._lock, self._closed = threading.Lock(), False  # calls take turns
        # It starts the process, which the kernel kills when the thread that started it ends.
        self._starter = ThreadPoolExecutor(1, "predictor")
        try:
            self._child = model_process(
                model,
                self._directory,
                self._readable,
                self._results,
                accelerator=settings.device,
                threads=settings.threads,
                level=settings.sandbox,
                silence_seconds=settings.silence_seconds,
            )
        except BaseException:
            self._free()
            raise

    def predict(self, inputs: Inputs) -> Probabilities:
        """Compute the probabilities [N, C] of raw samples [N, …]; raise WrongState after `close`."""
        with self._lock:
            if self._closed:
                raise WrongState("the model was closed")
            if not self._child.running:
                self._starter.submit(self._child.start).result()
            return self._predict(inputs)

    def _predict(self, inputs: Inputs) -> Probabilities:
        size = 4 * len(inputs) * self._classes
        os.ftruncate(self._results, 0)
        os.ftruncate(self._inputs, max(1, inputs.nbytes))
        os.pwrite(self._inputs, inputs.data, 0)
        self._child.answer(encode("predict", samples=len(inputs)), "predicted")
        computed = os.pread(self._computed, size + 1, 0)
        if len(computed) != size:
            raise TrainingFailed(f"{NAME} sent invalid results")
        return np.frombuffer(computed, np.float32).reshape(len(inputs), self._classes)

    def close(self) -> None:
        """End the process after the call in progress."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._child.end()
            self._free()

    def _free(self) -> None:
        self._starter.shutdown()
        self._root.cleanup()
        for file in (self._inputs, self._readable, self._results, self._computed):
            os.close(file)
