"""The training worker: `python -m moonfed.edge_client.worker.main SETTINGS PARENT`, started by `agent.worker_process`.

Torch is imported with the first job. The child stays between rounds, with plan and samples in memory, and ends when its
standard input closes: when the parent says so, or is no more.
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

SIGN_SECONDS = 1.0  # between two heartbeats
BESIDE_STEPS = 0.01  # share of a round for work other than steps: reading data, references, surveys, holdout
REASON_LENGTH = 300  # characters; the log on this device has the whole traceback


class TrainingWorker:
    """The worker: executes the parent's commands one at a time."""

    def __init__(self, settings: WorkerSettings, parent: ParentPipe) -> None:
        self._settings, self._parent = settings, parent
        self._trainer: Trainer | None = None
        self._next_sign = 0.0
        self._loss: float | None = None
        self._beside = 0  # units of work other than steps

    def check(self) -> None:
        """Raise what would fail every round: missing data, or missing CUDA."""
        open_source(self._settings.data).check()
        if self._settings.accelerator != "cpu":  # importing torch takes two seconds; cpu does not need it
            from moonfed.edge_client.worker.trainer import require_accelerator

            require_accelerator(self._settings.accelerator)

    def train(self, job: Job) -> str:
        """Train one round and store the update; return `trained`, or `stopped` if the parent asked for that."""
        from moonfed.edge_client.training.local_training import Stopped
        from moonfed.edge_client.worker.trainer import Trainer

        self._trainer = self._trainer or Trainer(self._settings, self._reading, self._training)
        self._loss, self._beside = None, 0
        try:
            self._trainer.train(job)
        except Stopped:
            return "stopped"
        return "trained"

    def _reading(self) -> None:
        self._beside += 1
        self._sign(0.0, 0)

    def _training(self, progress: Progress) -> None:
        self._beside += progress.epoch == 0
        self._loss = progress.loss if progress.loss is not None else self._loss
        self._sign(progress.fraction, progress.epoch)

    def _sign(self, fraction: float, epoch: int) -> None:
        """Report progress at most once per SIGN_SECONDS; raise Stopped if the parent asked to stop."""
        if self._parent.stop_asked.is_set():
            from moonfed.edge_client.training.local_training import Stopped

            raise Stopped
        if time.monotonic() >= self._next_sign:
            self._next_sign = time.monotonic() + SIGN_SECONDS
            # Strictly increasing with every unit of work, so that the coordinator can detect a stalled device.
            beside = self._beside / (self._beside + 1)
            told = (1 - BESIDE_STEPS) * fraction + BESIDE_STEPS * beside
            self._parent.say("progress", fraction=told, epoch=epoch, loss=self._loss)


def main() -> None:
    """Stay online until a signal or a final error."""
    die_with(int(sys.argv[2]))
    parent = ParentPipe()
    logging.basicConfig(handlers=[LogForwarder(parent)], level=logging.INFO, format="%(message)s")
    worker = TrainingWorker(WorkerSettings(**json.loads(sys.argv[1])), parent)
    while True:
        kind, fields = parent.next_command()
        try:
            if kind == "check":
                worker.check()
                parent.say("ready")
            else:
                parent.say(worker.train(Job.from_document(fields)))
        except MoonfedError as error:
            parent.say("failed", error=type(error).__name__, reason=str(error))
        except Exception as error:  # in the plan or in user code; it must not look like silence
            traceback.print_exc()
            parent.say("failed", error="TrainingFailed", reason=_in_one_sentence(error))


def _in_one_sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()  # TorchScript puts its own traceback before the message
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"[:REASON_LENGTH]


if __name__ == "__main__":
    main()
