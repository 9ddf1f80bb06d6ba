"""Local training in two children: the reader, which runs the device's data source, and the trainer in its sandbox.

The reader writes samples to memory that the trainer maps. The trainer reads the job's files and writes results in
STATE/job; everything else of the state, the identity and the network are the agent's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from moonfed.blobs import ref_of_bytes
from moonfed.edge_client.agent.child_process import SILENCE_SECONDS, ChildProcess, Fields, Program
from moonfed.edge_client.agent.sandboxed_process import (
    SPARE_FILES,
    JobDirectory,
    Sandbox,
    sandboxed_process,
    shared_file,
)
from moonfed.edge_client.job import Job
from moonfed.edge_client.resources.available_memory import host_available
from moonfed.edge_client.state.round_results import RoundResults, save_results, with_kept_files
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings, encode
from moonfed.errors import TrainingFailed
from moonfed.manifest import Manifest
from moonfed.schema import TensorSpec, model_size

# Not from the working directory, where others may be able to write files.
START_READER = (
    "import sys; sys.path[:] = filter(None, sys.path); from moonfed.edge_client.worker.reader import main; main()"
)
GRACE_SECONDS = 60.0  # grace after --max-seconds for the work after the last step; then the trainer is killed
FILE_HEADER = 1 << 20  # bytes of a result besides its numbers


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The progress of local training."""

    fraction: float
    epoch: int
    loss: float | None  # the newest whole epoch's


class WorkerProcess:
    """The reader and the trainer, started on demand. All calls but `end` must come from one long-lived thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        silence_seconds: float = SILENCE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._settings, self._silence_seconds, self._grace = settings, silence_seconds, grace_seconds
        self._directory = JobDirectory(Path(settings.state, "job").absolute())
        samples, self._readable_samples = shared_file()
        self._version = 0  # of the samples
        command = [sys.executable, "-c", START_READER, json.dumps(asdict(settings)), str(samples)]
        reader = Program(name="the process that reads the data", command=command, files=(samples,))
        self._reader = ChildProcess(reader, silence_seconds)
        self._trainer: ChildProcess | None = None
        self._plan_file = ""  # the trainer's

    @property
    def running(self) -> bool:
        """True if there is a process to end."""
        return self._reader.running or (self._trainer is not None and self._trainer.running)

    def check(self) -> None:
        """Start the processes that check this device's settings, raise any error, and end them."""
        self._reader.answer(encode("check"), "ready")
        if self._settings.accelerator != "cpu":  # importing torch takes two seconds; cpu does not need it
            self._trainer, self._plan_file = self._new_trainer(FILE_HEADER, 0), ""
            self._trainer.answer(encode("check"), "ready")
        self.end()

    def train(self, job: Job, should_continue: Callable[[Heartbeat | None], bool]) -> bool:
        """Train one round and store its results; return False if `should_continue` stopped it.

        `should_continue` is called with each heartbeat, and with None in between. Raises TrainingFailed if a child
        crashed, hung, took too long or could not train, or the child's own MoonfedError; the next job then starts new
        processes. A trainer runs one plan only, so that no plan can change what another computes.
        """

        def on_progress(fields: Fields | None) -> bool:
            return should_continue(None if fields is None else _heartbeat(fields))

        job = job if job.began is not None else replace(job, began=time.monotonic())
        content = Path(job.manifest_file).read_bytes()
        manifest = Manifest.from_bytes(content)
        state = self._state(job, content)
        trainer = self._trainer_of(job, manifest)
        self._directory.clear()
        try:
            trainer.start()  # imports torch while the data are read
            read = self._reader.answer(encode("read", manifest_file=job.manifest_file), "read", on_progress)
            if read is None:
                return False
            counts = self._counts(read)
            staged = self._staged(with_kept_files(job, state, manifest))
            command = encode("train", job=staged.to_document(), samples=asdict(counts), other_work=read["other_work"])
            trained = trainer.answer(command, "trained", on_progress, self._seconds(job))
            if trained is not None:
                save_results(state, job, manifest, self._results(trained, counts))
            return trained is not None
        except BaseException:
            self.end()
            raise
        finally:
            self._directory.clear()

    def end(self) -> None:
        """Kill both processes and everything they started; their files are always consistent."""
        self._reader.end()
        if self._trainer is not None:
            self._trainer.end()

    def _state(self, job: Job, manifest: bytes) -> RunState:
        runs = Path(self._settings.state, "runs")
        return RunState(runs, job.id.run, manifest=ref_of_bytes(manifest).sha256, seed=job.seed)

    def _trainer_of(self, job: Job, manifest: Manifest) -> ChildProcess:
        if self._trainer is None or self._plan_file != job.plan_file:
            if self._trainer is not None:
                self._trainer.end()
            self._trainer, self._plan_file = self._new_trainer(_file_size(manifest), _files(manifest)), job.plan_file
        return self._trainer

    def _new_trainer(self, file_size: int, files: int) -> ChildProcess:
        self._directory.renew()
        settings, samples = self._settings, self._readable_samples
        return sandboxed_process(
            "train",
            {"worker": asdict(settings) | {"state": "", "data": "", "labels": {}}, "file": samples},
            Sandbox(
                level=settings.sandbox,
                accelerator=settings.accelerator,
                max_memory=settings.max_memory or self._free_memory(),
                file_size=file_size,
                files=files + SPARE_FILES,
            ),
            self._directory,
            (samples,),
            self._silence_seconds,
        )

    def _free_memory(self) -> int | None:
        """Return the machine's available memory plus the bytes of the samples, which the trainer maps."""
        free = host_available()
        return None if free is None else free + os.fstat(self._readable_samples).st_size

    def _counts(self, read: Fields) -> SampleCounts:
        self._version += read["changed"]
        return SampleCounts(samples=read["samples"], held_out=read["held_out"], version=self._version)

    def _staged(self, job: Job) -> Job:
        """Return the job with its files in the job directory."""
        add = self._directory.add
        return replace(
            job,
            manifest_file=add(job.manifest_file, "manifest.json"),
            plan_file=add(job.plan_file, "plan.pt"),
            files={role: add(file, f"{role}.received") for role, file in job.files.items()},
            previous_models=tuple(add(file, f"{index}.previous") for index, file in enumerate(job.previous_models)),
            kept={role: add(file, f"{role}.kept") for role, file in job.kept.items()},
        )

    def _seconds(self, job: Job) -> float | None:
        """Return the seconds until the trainer is killed; None: as long as it reports progress."""
        if job.max_seconds is None:
            return None
        began = time.monotonic() if job.began is None else job.began
        return max(0.0, began + job.max_seconds - time.monotonic()) + self._grace

    def _results(self, trained: Fields, counts: SampleCounts) -> RoundResults:
        """Return the trainer's results; raise TrainingFailed unless they have the right types."""
        steps, metrics = trained.get("steps"), trained.get("metrics")
        if not isinstance(steps, int) or not isinstance(metrics, Mapping):
            raise TrainingFailed("the training process sent invalid results")
        if not all(isinstance(value, float) for value in metrics.values()):
            raise TrainingFailed("the training process sent metrics that are not numbers")
        return RoundResults(
            directory=self._directory.output, samples=counts.samples, steps=steps, metrics=dict(metrics)
        )


def _file_size(manifest: Manifest) -> int:
    """Return the bytes of the largest file that a round writes."""
    roles = [manifest.tensors, *manifest.uplink.values(), *manifest.device_state.values()]
    return max(map(_bytes, roles)) + FILE_HEADER


def _files(manifest: Manifest) -> int:
    """Return the most files that a round's results have: a model, its encoded form and that one's error, and others."""
    return 3 + len(manifest.uplink) + len(manifest.device_state)


def _bytes(specs: tuple[TensorSpec, ...]) -> int:
    return 4 * model_size(specs)


def _heartbeat(fields: Mapping[str, Any]) -> Heartbeat:
    """Convert a heartbeat; raise TrainingFailed unless its values are numbers within range."""
    try:
        fraction, epoch, loss = float(fields["fraction"]), int(fields["epoch"]), fields["loss"]
        heartbeat = Heartbeat(fraction, epoch, None if loss is None else float(loss))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise TrainingFailed("the training process sent an invalid heartbeat") from error
    if not 0 <= heartbeat.fraction <= 1:
        raise TrainingFailed("the training process sent an invalid heartbeat")
    return heartbeat
