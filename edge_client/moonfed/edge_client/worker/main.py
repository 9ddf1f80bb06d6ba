"""The training worker: `python -m moonfed.edge_client.worker.main SETTINGS PARENT`, started by `agent.worker_process`.

Torch is imported with the first job. The worker keeps plan and samples in memory between rounds, and exits when its
standard input closes, which happens when the parent closes it or dies.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import TYPE_CHECKING

from moonfed.edge_client.data.source import open_source
from moonfed.edge_client.worker.ipc import LogForwarder, ParentPipe, die_with
from moonfed.edge_client.worker.messages import Job, WorkerSettings
from moonfed.errors import MoonfedError

if TYPE_CHECKING:
    from moonfed.edge_client.training.local_training import Progress
    from moonfed.edge_client.worker.trainer import Trainer

HEARTBEAT_SECONDS = 1.0  # between two heartbeats
OTHER_WORK_SHARE = 0.01  # share of a round for work other than steps: reading data, references, surveys, holdout
REASON_LENGTH = 300  # characters; the log on this device has the whole traceback


class TrainingWorker:
    """The worker: executes the parent's commands one at a time."""

    def __init__(self, settings: WorkerSettings, parent: ParentPipe) -> None:
        self._settings, self._parent = settings, parent
        self._trainer: Trainer | None = None
        self._next_heartbeat = 0.0
        self._loss: float | None = None
        self._other_work = 0  # units of work other than steps

    def check(self) -> None:
        """Raise an error that would fail every round: missing data, or missing CUDA."""
        open_source(self._settings.data).check()
        if self._settings.accelerator != "cpu":  # importing torch takes two seconds; cpu does not need it
            from moonfed.edge_client.worker.trainer import require_accelerator

            require_accelerator(self._settings.accelerator)

    def train(self, job: Job) -> str:
        """Train one round and store the update; return `trained`, or `stopped` if the parent requested that."""
        from moonfed.edge_client.training.local_training import Stopped
        from moonfed.edge_client.worker.trainer import Trainer

        self._trainer = self._trainer or Trainer(self._settings, self._reading, self._training)
        self._loss, self._other_work = None, 0
        try:
            self._trainer.train(job)
        except Stopped:
            return "stopped"
        return "trained"

    def _reading(self) -> None:
        self._other_work += 1
        self._heartbeat(0.0, 0)

    def _training(self, progress: Progress) -> None:
        self._other_work += progress.epoch == 0
        self._loss = progress.loss if progress.loss is not None else self._loss
        self._heartbeat(progress.fraction, progress.epoch)

    def _heartbeat(self, fraction: float, epoch: int) -> None:
        """Report progress at most once per HEARTBEAT_SECONDS; raise Stopped if the parent asked to stop."""
        if self._parent.stop_requested.is_set():
            from moonfed.edge_client.training.local_training import Stopped

            raise Stopped
        if time.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
            # Strictly increasing with every unit of work, so that the coordinator can detect a stalled device.
            other_work = self._other_work / (self._other_work + 1)
            reported = (1 - OTHER_WORK_SHARE) * fraction + OTHER_WORK_SHARE * other_work
            self._parent.send("progress", fraction=reported, epoch=epoch, loss=self._loss)


def main() -> None:
    """Execute the parent's commands until its pipe closes."""
    die_with(int(sys.argv[2]))
    parent = ParentPipe()
    logging.basicConfig(handlers=[LogForwarder(parent)], level=logging.INFO, format="%(message)s")
    worker = TrainingWorker(WorkerSettings(**json.loads(sys.argv[1])), parent)
    while True:
        kind, fields = parent.next_command()
        try:
            if kind == "check":
                worker.check()
                parent.send("ready")
            else:
                parent.send(worker.train(Job.from_document(fields)))
        except MoonfedError as error:
            parent.send("failed", error=type(error).__name__, reason=str(error))
        except Exception as error:  # in the plan or in user code; it must be reported, not look like a hang
            traceback.print_exc()
            parent.send("failed", error="TrainingFailed", reason=_summary(error))


def _summary(error: Exception) -> str:
    lines = str(error).strip().splitlines()  # TorchScript puts its own traceback before the message
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:REASON_LENGTH]


if __name__ == "__main__":
    main()
