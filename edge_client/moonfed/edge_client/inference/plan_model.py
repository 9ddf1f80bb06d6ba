"""A released plan in a sandboxed process, for callers in any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from moonfed.data.data_set import Inputs
from moonfed.edge_client.agent.model_process import model_process
from moonfed.edge_client.inference.model import Outputs
from moonfed.edge_client.inference.settings import InferenceSettings
from moonfed.edge_client.state.model_files import ModelFiles
from moonfed.errors import WrongState
from moonfed.sandbox.sandboxed_process import JobDirectory
from moonfed.sandbox.shared_predictions import SharedPredictions


class SandboxedModel:
    """A model in a process, which is started when the model is loaded and ends with `close`."""

    def __init__(self, model: ModelFiles, state: Path, settings: InferenceSettings) -> None:
        """Start the process; `state`: the device's state directory, which it must not read."""
        self._shared = SharedPredictions(model.shape)
        self._root = TemporaryDirectory(prefix="moonfed-")
        self._directory = JobDirectory(Path(self._root.name), state)
        self._lock, self._closed = threading.Lock(), False  # calls take turns
        # It starts the process, which the kernel kills when the thread that started it ends.
        self._starter = ThreadPoolExecutor(1, "predictor")
        try:
            self._child = model_process(
                model,
                self._directory,
                self._shared.samples,
                self._shared.results,
                accelerator=settings.device,
                threads=settings.threads,
                level=settings.sandbox,
                silence_seconds=settings.silence_seconds,
            )
        except BaseException:
            self._free()
            raise

    def predict(self, inputs: Inputs) -> Outputs:
        """Compute the outputs [N, …] of raw samples [N, …]; raise WrongState after `close`."""
        with self._lock:
            if self._closed:
                raise WrongState("the model was closed")
            if not self._child.running:
                self._starter.submit(self._child.start).result()
            return self._shared.predict(self._child, inputs)

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
        self._shared.close()
