"""Local training in two children: the reader, which runs the device's data source, and the trainer in its sandbox.

The reader writes samples to memory that the trainer maps; those that are too large stay in files, which it maps, too.
The trainer reads the job's files and writes results in
STATE/job; everything else of the state, the identity and the network are the agent's. A release is tried on the same
samples, in a sandboxed process of its own.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moonfed.available_memory import Available, host_available
from moonfed.blobs.schema import TensorSpec, model_size
from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import PLAN_NAMES, InputSpec, Manifest, Metric
from moonfed.bundle.target import TargetSpec
from moonfed.edge_client.job import Job, ScoreJob
from moonfed.edge_client.requirements import require_samples
from moonfed.edge_client.state.round_results import RoundResults, save_results, with_kept_files, written_files
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings, wanted_samples
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.fleet.evaluation import MIN_HOLDOUT, HoldoutScores
from moonfed.sandbox.child_process import SILENCE_SECONDS, ChildProcess, Fields, Program
from moonfed.sandbox.messages import encode
from moonfed.sandbox.sandboxed_process import (
    NAME,
    SPARE_FILES,
    JobDirectory,
    Sandbox,
    mapped_size,
    sandboxed_process,
    shared_file,
)
from moonfed.version import PLAN_INTERFACE

if TYPE_CHECKING:
    from moonfed.edge_client.state.model_files import ModelFiles

# Not from the working directory, where others may be able to write files.
START_READER = (
    "import sys; sys.path[:] = filter(None, sys.path); from moonfed.edge_client.worker.reader import main; main()"
)
GRACE_SECONDS = 60.0  # grace after --max-seconds for the work after the last step; then the trainer is killed
FILE_HEADER = 1 << 20  # bytes of a result besides its numbers
ERROR_BYTES = 4  # of a model's error on a sample, float32


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The progress of local training."""

    fraction: float
    epoch: int
    loss: float | None  # the newest whole epoch's


@dataclass(frozen=True, slots=True)
class TrainerMemory:
    """Bytes that a trainer holds before its first round, and the device's memory."""

    runtime: int
    capacity: Available


class WorkerProcess:
    """The reader and the trainer, started on demand. All calls but `end` must come from one long-lived thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        silence_seconds: float = SILENCE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._settings = settings
        self._silence_seconds = silence_seconds
        self._grace = grace_seconds
        self._directory = JobDirectory(Path(settings.state, "job").absolute())
        samples, self._readable_samples = shared_file()
        self._version = 0  # of the samples
        self._files: dict[str, tuple[int, int]] = {}  # of samples that are not in memory: descriptor, beginning
        command = [sys.executable, "-c", START_READER, json.dumps(asdict(settings)), str(samples)]
        reader = Program(name="the process that reads the data", command=command, files=(samples,))
        self._reader = ChildProcess(reader, silence_seconds)
        self._trainer: ChildProcess | None = None
        self._model: ChildProcess | None = None  # while a release is tried
        self._manifest_file = ""  # the trainer's
        self._memory: TrainerMemory | None = None  # once a trainer has reported it
        self._operators: set[str] = set()  # that the installed torch is known to have

    @property
    def running(self) -> bool:
        """True if there is a process to end."""
        return self._reader.running or (self._trainer is not None and self._trainer.running)

    def check(self) -> None:
        """Start the processes that check this device's settings, raise any error, and end them."""
        if self._settings.data:
            self._reader.answer(encode("check"), "ready")
        if self._settings.accelerator != "cpu":  # importing torch takes two seconds; cpu does not need it
            self._trainer, self._manifest_file = self._new_trainer(FILE_HEADER, 0), ""
            self._memory = _trainer_memory(self._trainer.answer(encode("check"), "ready"))
        self.end()

    def check_run(self, manifest_file: str, plan_interface: str = PLAN_INTERFACE) -> SampleCounts:
        """Read the samples for a bundle, and compare its operators and the memory of its rounds with this device's.

        Returns the numbers of samples; raises the reason why the device cannot train the bundle, or TrainingFailed. The
        processes are ready for a round of this bundle afterwards.
        """
        from moonfed.edge_client.resources.memory_estimate import require_fits, round_bytes  # seldom needed

        manifest = Manifest.from_bytes(Path(manifest_file).read_bytes())
        try:
            read = self._reader.answer(self._read(manifest), "read")
            assert read is not None  # noqa: S101 - nobody stops it
            counts = self._counts(read)
            require_samples(manifest, counts.samples)
            # The graph plan's own operators are looked up when it is inspected.
            called = manifest.plan.operators if plan_interface == PLAN_INTERFACE else ()
            unknown = set(called) - self._operators
            if self._memory is None or unknown:
                trainer = self._trainer_of(manifest_file, manifest)
                self._memory = _trainer_memory(trainer.answer(encode("check", operators=sorted(unknown)), "ready"))
                self._operators |= unknown
            need = round_bytes(
                manifest,
                samples=counts.samples,
                held_out=counts.held_out,
                batch_size=manifest.training.batch_size,
                epochs=manifest.training.epochs,
                views=manifest.training.views,
                precision=self._settings.precision,
                accelerator=self._settings.accelerator,
                runtime=self._memory.runtime,
                mapped=bool(counts.files),
            )
            require_fits(need, self._memory.capacity, self._settings.max_memory)
        except BaseException:
            self.end()
            raise
        return counts

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
        trainer = self._trainer_of(job.manifest_file, manifest)
        self._directory.clear()
        try:
            trainer.start()  # imports torch while the data are read
            read = self._reader.answer(self._read(manifest), "read", on_progress)
            if read is None:
                return False
            counts = self._counts(read)
            trainer = self._trainer_of(job.manifest_file, manifest)  # another one, if it must inherit other files
            self._directory.create(written_files(manifest, job))
            complete = with_kept_files(job, state, manifest)
            command = encode(
                "train", job=self._staged(complete).to_document(), samples=asdict(counts), other_work=read["other_work"]
            )
            trained = trainer.answer(command, "trained", on_progress, self._seconds(job))
            if trained is not None:
                save_results(state, complete, manifest, self._results(trained, counts))
            return trained is not None
        except BaseException:
            self.end()
            raise
        finally:
            self._directory.clear()

    def score(self, job: ScoreJob, should_continue: Callable[[], bool]) -> HoldoutScores | None:
        """Score models on the holdout; return None if `should_continue`, which is polled, stopped it.

        Raises InvalidInput if the holdout is too small to be scored, and as `train`.
        """

        def on_progress(fields: Fields | None) -> bool:
            return should_continue()

        manifest = Manifest.from_bytes(Path(job.manifest_file).read_bytes())
        read = self._reader.answer(self._read(manifest), "read", on_progress)
        if read is None:
            return None
        counts = self._counts(read)
        _require_holdout(counts.held_out)
        try:
            trainer = self._trainer_of(job.manifest_file, manifest)
            self._directory.clear()
            command = encode("score", job=asdict(self._staged_scores(job)), samples=asdict(counts), other_work=0)
            scored = trainer.answer(command, "scored", on_progress)
            return (
                None if scored is None else _holdout_scores(scored, counts.held_out, len(job.models), manifest.metric)
            )
        except BaseException:
            self.end()
            raise
        finally:
            self._directory.clear()

    def read_samples(self, spec: InputSpec, target: TargetSpec) -> SampleCounts:
        """Read the samples in a form; return their numbers, or raise the reason why they do not have it.

        A device for inference only has none.
        """
        if not self._settings.data:
            return SampleCounts(samples=0, held_out=0, version=0)
        try:
            room = None if self._settings.max_memory is None else self._settings.max_memory // 2
            read = self._reader.answer(encode("read", **wanted_samples(spec, target, room)), "read")
        except BaseException:
            self.end()
            raise
        assert read is not None  # noqa: S101 - nobody stops it
        return self._counts(read)

    def score_release(self, model: ModelFiles, counts: SampleCounts) -> array[float]:
        """Return a model's error on each sample of the holdout; without a holdout, only try it.

        `counts`: of the samples that were read in the model's form. Raises the reason why the model does not work.
        """
        from moonfed.edge_client.agent.model_process import model_process  # seldom needed

        directory, settings = JobDirectory(self._directory.root.with_name("release-job")), self._settings
        self._model = model_process(
            model,
            directory,
            self._readable_samples,
            mapped=self._descriptors,
            accelerator=settings.accelerator,
            threads=settings.threads,
            level=settings.sandbox,
            max_memory=settings.max_memory or self._free_memory(),
            silence_seconds=self._silence_seconds,
        )
        packed = bytearray()

        def on_progress(fields: Fields | None) -> bool:
            packed.extend(_chunk(fields) if fields else b"")
            return len(packed) <= ERROR_BYTES * counts.held_out

        try:
            command = encode("score", samples=counts.samples, held_out=counts.held_out, files=counts.files)
            self._model.answer(command, "scored", on_progress)
        finally:
            self._model.end()
            directory.clear()
        return _errors(packed, counts.held_out)

    def end(self) -> None:
        """Kill all processes and everything they started; their files are always consistent."""
        self._reader.end()
        for process in (self._trainer, self._model):
            if process is not None:
                process.end()

    def _state(self, job: Job, manifest: bytes) -> RunState:
        runs = Path(self._settings.state, "runs")
        return RunState(runs, job.id.run, manifest=ref_of_bytes(manifest).sha256, seed=job.seed)

    def _trainer_of(self, manifest_file: str, manifest: Manifest) -> ChildProcess:
        if self._trainer is None or self._manifest_file != manifest_file:
            if self._trainer is not None:
                self._trainer.end()
            self._trainer = self._new_trainer(_file_size(manifest), _files(manifest))
            self._manifest_file = manifest_file
        return self._trainer

    def _new_trainer(self, file_size: int, files: int) -> ChildProcess:
        self._directory.renew()
        settings, samples = self._settings, self._readable_samples
        return sandboxed_process(
            "moonfed.edge_client.worker.trainer",
            {"worker": asdict(settings) | {"state": "", "data": "", "labels": {}}, "file": samples},
            Sandbox(
                level=settings.sandbox,
                accelerator=settings.accelerator,
                max_memory=settings.max_memory or self._free_memory(),
                file_size=file_size,
                files=files + SPARE_FILES,
                mapped=mapped_size(self._descriptors),
            ),
            self._directory,
            (samples, *self._descriptors),
            self._silence_seconds,
        )

    def _free_memory(self) -> int | None:
        """Return the machine's available memory plus the bytes of the samples, which the trainer maps."""
        free = host_available()
        return None if free is None else free + os.fstat(self._readable_samples).st_size

    def _read(self, manifest: Manifest) -> bytes:
        return encode("read", **wanted_samples(manifest.input, manifest.target, self._room(manifest)))

    def _room(self, manifest: Manifest) -> int | None:
        """Return the bytes of memory that a round leaves for samples; None: unknown."""
        from moonfed.edge_client.resources.memory_estimate import round_bytes, samples_room  # seldom needed

        training = manifest.training
        need = round_bytes(
            manifest,
            samples=training.batch_size,
            batch_size=training.batch_size,
            epochs=1,
            precision=self._settings.precision,
            accelerator=self._settings.accelerator,
            runtime=self._memory.runtime if self._memory else 0,
        )
        return samples_room(need, self._free_memory(), self._settings.max_memory)

    def _counts(self, read: Fields) -> SampleCounts:
        if read["changed"]:
            self._version += 1
            self._open_files(read["files"])
        return SampleCounts(
            samples=read["samples"],
            held_out=read["held_out"],
            version=self._version,
            classes=read["classes"],
            files=self._files,
        )

    def _open_files(self, files: Mapping[str, tuple[str, int]]) -> None:
        """Open the files in which samples stay, for the trainer to inherit; it ends if it has inherited others."""
        if self._trainer is not None and (files or self._files):
            self._trainer.end()
            self._trainer = None
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._files = {}
        try:
            for name, (path, begin) in files.items():
                self._files[name] = os.open(path, os.O_RDONLY), begin
        except OSError as error:
            raise TrainingFailed(f"samples on disk cannot be opened: {error.strerror}") from error

    @property
    def _descriptors(self) -> tuple[int, ...]:
        return tuple(descriptor for descriptor, _ in self._files.values())

    def _staged(self, job: Job) -> Job:
        """Return the job with its files in the job directory."""
        add = self._directory.add
        return replace(
            job,
            manifest_file=add(job.manifest_file, "manifest.json"),
            plan_file=add(job.plan_file, PLAN_NAMES[job.plan_interface]),
            files={role: add(file, f"{role}.received") for role, file in job.files.items()},
            parts={name: add(file, name) for name, file in job.parts.items()},
            previous_models=tuple(add(file, f"{index}.previous") for index, file in enumerate(job.previous_models)),
            kept={role: add(file, f"{role}.kept") for role, file in job.kept.items()},
        )

    def _staged_scores(self, job: ScoreJob) -> ScoreJob:
        add = self._directory.add
        return replace(
            job,
            manifest_file=add(job.manifest_file, "manifest.json"),
            plan_file=add(job.plan_file, PLAN_NAMES[job.plan_interface]),
            model=add(job.model, "model.received"),
            parts={name: add(file, name) for name, file in job.parts.items()},
            personal=add(job.personal, "personal.kept") if job.personal else None,
            local_model=add(job.local_model, "local.previous") if job.local_model else None,
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
            raise TrainingFailed(f"{NAME} sent invalid results")
        if not all(isinstance(value, float) for value in metrics.values()):
            raise TrainingFailed(f"{NAME} sent metrics that are not numbers")
        return RoundResults(
            directory=self._directory.output, samples=counts.samples, steps=steps, metrics=dict(metrics)
        )


def _file_size(manifest: Manifest) -> int:
    """Return the bytes of the largest file that a round writes."""
    roles = [manifest.tensors, *manifest.uplink.values(), *manifest.device_state.values()]
    return max(map(_bytes, roles)) + FILE_HEADER


def _files(manifest: Manifest) -> int:
    """Return the most files that a round's results have: a model, its encoded form, the encoding error, and others."""
    return 3 + len(manifest.uplink) + len(manifest.device_state)


def _bytes(specs: tuple[TensorSpec, ...]) -> int:
    return 4 * model_size(specs)


def _require_holdout(samples: int) -> None:
    """Raise InvalidInput unless a holdout may be scored."""
    if samples == 0:
        raise InvalidInput("this device has no holdout")
    if samples < MIN_HOLDOUT:
        raise InvalidInput(f"the holdout of this device has fewer than {MIN_HOLDOUT} samples")


def _holdout_scores(scored: Fields, samples: int, models: int, metric: Metric) -> HoldoutScores:
    """Convert a trainer's report; raise TrainingFailed unless it has a value of the metric for each model."""
    scores = scored.get("scores")
    try:
        if not isinstance(scores, list) or len(scores) != models or not all(type(one) is float for one in scores):
            raise InvalidInput("scores must be one number for each model", field="scores")
        found = HoldoutScores(samples=samples, score=scores[0], local_score=scores[1] if models > 1 else None)
        found.require_fits(metric)
        return found
    except InvalidInput as error:
        raise TrainingFailed(f"{NAME} sent invalid results") from error


def _trainer_memory(fields: Fields | None) -> TrainerMemory:
    """Convert a trainer's report; raise TrainingFailed unless its values are sizes."""
    try:
        assert fields  # noqa: S101 - nobody stops it
        runtime, capacity = int(fields["runtime"]), Available(**fields["capacity"])
        sizes = [size for size in (runtime, capacity.host, capacity.accelerator) if size is not None]
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise ValueError(sizes)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise TrainingFailed(f"{NAME} sent an invalid answer") from error
    return TrainerMemory(runtime, capacity)


def _chunk(fields: Fields) -> bytes:
    """Return a model's errors on the samples of a chunk, float32; raise TrainingFailed if they are not."""
    try:
        return bytes.fromhex(fields["errors"])
    except (LookupError, TypeError, ValueError) as error:
        raise TrainingFailed(f"{NAME} sent an invalid answer") from error


def _errors(packed: bytes | bytearray, samples: int) -> array[float]:
    """Join what a model's process sent about all chunks; raise TrainingFailed unless it is a number for each sample."""
    errors = array("f")
    if len(packed) == ERROR_BYTES * samples:
        errors.frombytes(packed)
        if sys.byteorder == "big":
            errors.byteswap()
    if len(errors) != samples or not all(math.isfinite(error) and error >= 0 for error in errors):
        raise TrainingFailed(f"{NAME} sent an invalid answer")
    return errors


def _heartbeat(fields: Mapping[str, Any]) -> Heartbeat:
    """Convert a heartbeat; raise TrainingFailed unless its values are numbers within range."""
    try:
        fraction = float(fields["fraction"])
        epoch = int(fields["epoch"])
        loss = fields["loss"]
        heartbeat = Heartbeat(fraction, epoch, None if loss is None else float(loss))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise TrainingFailed(f"{NAME} sent an invalid heartbeat") from error
    if not 0 <= heartbeat.fraction <= 1:
        raise TrainingFailed(f"{NAME} sent an invalid heartbeat")
    return heartbeat
