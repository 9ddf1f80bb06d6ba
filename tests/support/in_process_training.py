"""The reader and the trainer of a device in the process of the test, without a sandbox."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_results import save_results, with_kept_files
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.worker.heartbeat import Heartbeats
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings, wanted_samples
from moonfed.edge_client.worker.reader import SampleReader
from moonfed.edge_client.worker.trainer import Trainer
from moonfed.sandbox.ipc import ParentPipe
from moonfed.sandbox.sandboxed_process import shared_file


class SilentParent(ParentPipe):
    """A parent process that ignores all messages."""

    def __init__(self) -> None:
        self.stop_requested = threading.Event()

    def send(self, kind: str, **fields: Any) -> None:
        """Send nothing."""


class InProcessTraining:
    """A device's reader and trainer."""

    def __init__(self, settings: WorkerSettings, parent: ParentPipe | None = None) -> None:
        written, readable = shared_file()
        self._settings, self._parent, self._version = settings, parent or SilentParent(), 0
        self._output = Path(settings.state, "output")
        self._reader = SampleReader(settings, written, self._parent)
        self._trainer = Trainer(settings, readable, self._output)

    def train(self, job: Job) -> StoredRound:
        """Train one round and store its update."""
        job = job if job.began is not None else replace(job, began=time.monotonic())
        content = Path(job.manifest_file).read_bytes()
        manifest, runs = Manifest.from_bytes(content), Path(self._settings.state, "runs")
        state = RunState(runs, job.id.run, manifest=ref_of_bytes(content).sha256, seed=job.seed)
        read = self._reader.read(**wanted_samples(manifest.input, manifest.target))
        self._version += read["changed"]
        counts = SampleCounts(samples=read["samples"], held_out=read["held_out"], version=self._version)
        heartbeats = Heartbeats(self._parent, read["other_work"])
        complete = with_kept_files(job, state, manifest)
        results = self._trainer.train(
            complete, counts, lambda found: heartbeats.report(found.fraction, found.epoch, found.loss)
        )
        return save_results(state, complete, manifest, results)
