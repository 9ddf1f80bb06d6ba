"""The executor: fetches, checks, trains and submits each assignment, or declines it with a reason.

When a run has ended, it fetches the finished model and deletes the run's state.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from moonfed.assignment import Assignment, RunEnded
from moonfed.blobs import BlobDirectory, BlobRef
from moonfed.edge_client.agent.compatibility import require_runnable
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.progress import ProgressReporter, retry_advice
from moonfed.edge_client.agent.redact import without_paths
from moonfed.edge_client.agent.transfers import REJECTIONS, BlobTransfers, Superseded, WindowClosed
from moonfed.edge_client.agent.worker_process import FILE_HEADER, WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.finished_models import MODEL_FILE, finished_models, remove_partial_models, store_finished
from moonfed.edge_client.state.gc import collect_garbage, drop_run
from moonfed.edge_client.state.round_store import RunState, StoredRound, run_directory
from moonfed.edge_client.state.trust import accept
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, TooLate, TrainingFailed, UnsafePlan, UntrustedBundle
from moonfed.manifest import MANIFEST_BYTES, MANIFEST_FILE, MODEL, PLAN_FILE, Manifest
from moonfed.schema import model_size
from moonfed.signing.bundle_signature import MAX_BYTES, SIGNATURE_FILE, require_name
from moonfed.signing.statement import Statement

VALUE_BYTES = 5  # at most, in any encoding of a file
IDLE_SECONDS = 5 * 60.0  # without work, after which the worker exits to free its memory

log = logging.getLogger(__name__)


class Executor:
    """A thread that processes the inbox while another keeps the session open."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        inbox: Inbox,
        window: TrainingWindow | None = None,
    ) -> None:
        """`window`: when to fetch and train; trained updates are submitted at any time."""
        state = Path(settings.state)
        self._settings, self._between = settings, str(window) if window else ""
        self._runs, self._finished = state / "runs", state / "finished"
        self._blobs = BlobDirectory(state / "blobs")  # manifests and plans, small; fetched once
        self._globals = BlobDirectory(state / "models")  # global models and state, each used in one round
        self._connection, self._worker, self._inbox = connection, worker, inbox
        self._transfers = BlobTransfers(connection, inbox, window)
        self._failure: BaseException | None = None
        self._rejected: deque[tuple[str, str]] = deque(maxlen=64)  # reasons already logged, by run
        self._unsafe: deque[tuple[str, str]] = deque(maxlen=64)  # manifests whose plans failed the inspection, and why

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        threading.Thread(target=self._run, name="executor", daemon=True).start()

    def require_running(self) -> None:
        """Raise TrainingFailed if the thread has died: a device must not stay online without training."""
        if self._failure is not None:
            raise TrainingFailed(
                f"the executor ended unexpectedly, with {type(self._failure).__name__}: {self._failure}; "
                "start the device again"
            ) from self._failure

    def end(self) -> None:
        """Kill the worker. Decline nothing, so that the coordinator may wait for this device to reconnect."""
        self._transfers.ending.set()
        self._worker.end()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            if not self._transfers.ending.is_set():
                log.exception("the executor ended unexpectedly")
            self._failure = error
            self._connection.close()  # ends the session's stream; the session then calls require_running

    def _work(self) -> None:
        self._collect_garbage()
        while not self._transfers.ending.is_set():
            task = self._inbox.next_task(IDLE_SECONDS)
            if task is None:
                self._worker.end()
                self._collect_garbage()
            elif isinstance(task, RunEnded):
                self._end_run(task)
            else:
                self._process(task)

    def _process(self, assignment: Assignment) -> None:
        try:
            self._deliver(assignment)
        except Superseded as reason:
            log.info("%s: dropped: %s", assignment, reason)
        except (UntrustedBundle, UnsafePlan) as error:
            self._reject(assignment, str(error))
        except MoonfedError as error:
            self._decline(assignment, str(error))
        except Exception as error:  # the next round may succeed
            if not self._transfers.ending.is_set():
                log.exception("%s: unexpected error on this device", assignment)
            self._decline(assignment, f"unexpected error on the device: {type(error).__name__}")

    def _end_run(self, ended: RunEnded) -> None:
        """Fetch the finished model, then delete the run's state.

        The state is deleted last: until then the device names the run when it connects, and the coordinator repeats
        that it has ended.
        """
        try:
            run_directory(self._runs, ended.run)
            if ended.manifest and ended.model:
                self._store_finished(ended, ended.manifest, ended.model)
        except (Superseded, WindowClosed) as reason:
            log.info("run %s has ended; fetching its model later: %s", ended.run, reason)
            return
        except (MoonfedError, OSError) as error:
            log.warning("run %s has ended; its model cannot be stored: %s", ended.run, error)
        self._drop(ended.run)
        kept = any(finished.run == ended.run for finished in finished_models(self._finished))
        log.info(
            "run %s has ended%s", ended.run, "; stored its model for predictions" if kept else "; deleted its files"
        )

    def _store_finished(self, ended: RunEnded, manifest: BlobRef, model: BlobRef) -> None:
        signature_file, statement = self._verify(ended.signature, manifest, needed=False)
        manifest_file = self._transfers.fetch(manifest, self._blobs, needed=False)
        read = Manifest.from_bytes(manifest_file.read_bytes())
        require_name(statement, read.name)
        _require_sizes({MODEL: model}, read)
        plan = read.files[PLAN_FILE]
        self._delete_other_globals([model])
        files = {
            SIGNATURE_FILE: signature_file,
            MANIFEST_FILE: manifest_file,
            PLAN_FILE: self._transfers.fetch(plan, self._blobs, needed=False),
            MODEL_FILE: self._transfers.fetch(model, self._globals, needed=False),
        }
        store_finished(self._finished, ended.run, ended.rounds, manifest=manifest, model=model, files=files)

    def _drop(self, run: str) -> None:
        try:
            self._delete_other_globals([])
            drop_run(self._runs, run, self._blobs.root)
        except (InvalidInput, OSError) as error:
            log.warning("cannot remove the files of run %s: %s", run, error)

    def _deliver(self, assignment: Assignment) -> None:
        run = RunState(self._runs, assignment.id.run, manifest=assignment.manifest.sha256, seed=assignment.seed)
        run.delete_foreign_rounds(assignment.id.round, assignment.id.attempt)
        stored = self._find(assignment, run)
        if stored:
            log.info("%s: assigned again; it is already trained", assignment)
        else:
            log.info("%s: assigned", assignment)
            stored = self._train(assignment, run)
        self._submit(assignment, stored)

    def _find(self, assignment: Assignment, run: RunState) -> StoredRound | None:
        return run.find(assignment.id.round, assignment.id.attempt, self._digest(assignment))

    def _digest(self, assignment: Assignment) -> str:
        return assignment.digest(self._settings.max_steps, self._settings.max_seconds, self._between)

    def _train(self, assignment: Assignment, run: RunState) -> StoredRound:
        if reason := dict(self._unsafe).get(assignment.manifest.sha256):
            raise UnsafePlan(reason)
        progress = ProgressReporter(assignment, self._connection, self._inbox)
        job = self._prepare(assignment, progress.should_fetch)
        progress.begin_training()
        try:
            finished = self._worker.train(job, progress.should_train)
        except UnsafePlan as error:
            self._unsafe.append((assignment.manifest.sha256, str(error)))
            raise
        if not finished:
            raise Superseded("training was stopped")
        self._delete_other_globals([])  # no longer needed
        stored = self._find(assignment, run)
        if stored is None:
            raise Corrupt("the trained model cannot be read back; the disk may be damaged")
        log.info("%s: trained on %d samples in %d steps, loss %.4f", assignment, stored.update.samples,
                 stored.update.steps, stored.update.metrics["loss"])  # fmt: skip
        return stored

    def _verify(self, signature: BlobRef | None, manifest: BlobRef, *, needed: bool = True) -> tuple[Path, Statement]:
        """Fetch and verify a bundle's signature; UntrustedBundle if this device does not accept the bundle."""
        if signature is None:
            raise UntrustedBundle("the bundle is not signed")
        if signature.size > MAX_BYTES:
            raise UntrustedBundle(f"the bundle's signature has {signature.size} bytes; it must be at most {MAX_BYTES}")
        if manifest.size > MANIFEST_BYTES:
            raise UntrustedBundle(f"the manifest has {manifest.size} bytes; it must be at most {MANIFEST_BYTES}")
        file = self._transfers.fetch(signature, self._blobs, needed=needed)
        return file, accept(Path(self._settings.state), file.read_bytes(), manifest.sha256, time.time())

    def _prepare(self, assignment: Assignment, should_continue: Callable[[], bool] = lambda: True) -> Job:
        """Verify the bundle and fetch what training needs.

        `should_continue` returns whether the round still needs this device. Raises UntrustedBundle for a bundle that
        this device does not accept, VersionMismatch for a plan that it cannot run.
        """
        signature_file, statement = self._verify(assignment.signature, assignment.manifest)
        os.utime(signature_file)
        manifest_file = self._transfers.fetch(assignment.manifest, self._blobs)
        os.utime(manifest_file)  # for collect_garbage
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_name(statement, manifest.name)
        require_runnable(manifest)
        _require_known_roles(assignment, manifest)
        _require_sizes(assignment.blobs, manifest)
        _require_signed_training(assignment, manifest)
        plan_file = self._transfers.fetch(manifest.files[PLAN_FILE], self._blobs, should_continue=should_continue)
        os.utime(plan_file)
        self._delete_other_globals(assignment.blobs.values())
        files = {
            role: self._transfers.fetch(ref, self._globals, should_continue=should_continue)
            for role, ref in assignment.blobs.items()
        }
        return Job(
            id=assignment.id,
            training=assignment.training,
            seed=assignment.seed,
            digest=self._digest(assignment),
            manifest_file=str(manifest_file),
            plan_file=str(plan_file),
            files={role: str(file) for role, file in files.items()},
            counted=assignment.counted,
            encodings=assignment.encodings,
            max_steps=self._settings.max_steps,
            max_seconds=self._seconds_left(),
            began=time.monotonic(),
        )

    def _seconds_left(self) -> float | None:
        """Return the seconds left for local training, by the device's budget and its training window."""
        left = [
            seconds for seconds in (self._settings.max_seconds, self._transfers.seconds_open()) if seconds is not None
        ]
        return min(left, default=None)

    def _submit(self, assignment: Assignment, stored: StoredRound) -> None:
        try:
            self._transfers.submit(assignment, stored)
        except TooLate as error:
            log.info("%s: too late: %s%s", assignment, error, retry_advice(error))
            return
        except REJECTIONS as error:
            if not self._transfers.ending.is_set():
                log.warning("%s: the coordinator rejected the update: %s", assignment, error)
            return
        log.info("%s: submitted", assignment)

    def _reject(self, assignment: Assignment, reason: str) -> None:
        """Decline every round of a run whose bundle or plan this device does not accept; log that once."""
        if (assignment.run, reason) not in self._rejected and not self._transfers.ending.is_set():
            self._rejected.append((assignment.run, reason))
            log.error("run %s: rejected for good: %s", assignment.run, reason)
        self._report_decline(assignment, reason, permanent=True)

    def _decline(self, assignment: Assignment, reason: str) -> None:
        if not self._transfers.ending.is_set():
            log.warning("%s: declined: %s", assignment, reason)
        self._report_decline(assignment, reason, permanent=False)

    def _report_decline(self, assignment: Assignment, reason: str, *, permanent: bool) -> None:
        if self._transfers.ending.is_set():
            return
        told = without_paths(reason, [self._settings.data, self._settings.state])
        try:
            self._connection.decline(assignment, told, permanent=permanent)
        except Exception as error:  # the round then ends without this device, at its deadline
            log.warning("%s: cannot report the rejection to the coordinator: %s", assignment, error)

    def _collect_garbage(self) -> None:
        try:
            collect_garbage(self._runs, self._blobs.root)
            remove_partial_models(self._finished)
        except OSError as error:
            log.warning("cannot remove unused files: %s", error)

    def _delete_other_globals(self, kept: Iterable[BlobRef]) -> None:
        names = {ref.sha256 for ref in kept}
        for file in self._globals.root.glob("*/*"):
            if file.name not in names:
                file.unlink()


def _require_known_roles(assignment: Assignment, manifest: Manifest) -> None:
    unknown = sorted(set(assignment.blobs) - {MODEL, *manifest.downlink})
    if unknown:
        allowed = ", ".join([MODEL, *manifest.downlink])
        raise InvalidInput(f"the assignment has a blob {unknown[0]!r}; the manifest's downlink has {allowed}")


def _require_sizes(blobs: Mapping[str, BlobRef], manifest: Manifest) -> None:
    """Raise InvalidInput for a file that is larger than its tensors can be; it could fill this device's disk."""
    for role, ref in blobs.items():
        limit = FILE_HEADER + VALUE_BYTES * model_size(manifest.tensors if role == MODEL else manifest.downlink[role])
        if ref.size > limit:
            raise InvalidInput(f"the {role} of the assignment has {ref.size} bytes; it must be at most {limit}")


def _require_signed_training(assignment: Assignment, manifest: Manifest) -> None:
    """Raise InvalidInput unless the training is what the manifest, which is signed, says about the round.

    Otherwise the coordinator could choose batches of one sample, whose gradients tell much about the sample.
    """
    signed, given = (spec.to_document() for spec in (manifest.training_at(assignment.id.round), assignment.training))
    for name, value in signed.items():
        if given[name] != value:
            raise InvalidInput(f"{name} of the assignment is {given[name]}; the signed manifest has {value}")
