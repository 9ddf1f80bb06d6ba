"""The executor: fetches, checks, trains and submits each assignment, or declines it with a reason.

It also follows target releases, and deletes the state of runs that have ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from moonfed.blobs.schema import model_size
from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import MODEL, PLAN_NAMES, Manifest
from moonfed.edge_client.agent.compatibility import REJECTED, require_runnable, require_signature
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.eligibility import EligibilityChecks
from moonfed.edge_client.agent.evaluation import Evaluations
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.heartbeat import ProgressReporter, retry_advice
from moonfed.edge_client.agent.inbox import Inbox, Task
from moonfed.edge_client.agent.redact import without_paths
from moonfed.edge_client.agent.transfers import REJECTIONS, BlobTransfers, Superseded, fetch_parts
from moonfed.edge_client.agent.worker_process import FILE_HEADER, WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.resources.free_disk import require_disk
from moonfed.edge_client.state.gc import collect_garbage, drop_run, keep_only, store_blob
from moonfed.edge_client.state.local_models import keep_local_model, remove_partial_local_models
from moonfed.edge_client.state.repository import has_releases
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.state.trust import accept
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import (
    Corrupt,
    InvalidInput,
    MoonfedError,
    TooLate,
    TrainingFailed,
    UnsafePlan,
    UntrustedBundle,
    VersionMismatch,
    explained,
    with_reference,
)
from moonfed.fleet.assignment import Assignment, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.fleet.target_release import TargetRelease
from moonfed.observability import tracing
from moonfed.observability.logs import fields as log_fields
from moonfed.observability.trace_context import parse_traceparent
from moonfed.signing.bundle_signature import require_name
from moonfed.signing.statement import Statement

if TYPE_CHECKING:
    from moonfed.edge_client.agent.device_metrics import DeviceMetrics
    from moonfed.edge_client.agent.releases import ReleaseInstaller
    from moonfed.edge_client.metrics_file import RoundOutcome

VALUE_BYTES = 5  # at most, in any encoding of a file
UNFIT = (InvalidInput, VersionMismatch)  # the device's data or software do not fit the run
IDLE_SECONDS = 5 * 60.0  # without work, after which the worker exits to free its memory

_log = logging.getLogger(__name__)


class Executor:
    """A thread that processes the inbox while another keeps the session open."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        inbox: Inbox,
        fingerprint: DeviceFingerprint,
        window: TrainingWindow | None = None,
        metrics: DeviceMetrics | None = None,
    ) -> None:
        """`window`: when to fetch and train; trained updates are submitted at any time. `metrics`: counts rounds."""
        self._metrics = metrics
        state = Path(settings.state)
        self._settings, self._between = settings, str(window) if window else ""
        self._runs = state / "runs"
        self._blobs = BlobDirectory(state / "blobs")  # manifests and plans, small; fetched once
        self._globals = BlobDirectory(state / "models")  # global models and state, each used in one round
        self._connection = connection
        self._worker = worker
        self._inbox = inbox
        self._transfers = BlobTransfers(connection, inbox, window)
        self._checks = EligibilityChecks(settings, connection, worker, self._transfers, fingerprint)
        self._evaluations = Evaluations(settings, connection, worker, self._transfers, inbox)
        self._fingerprint = fingerprint
        self._releases: ReleaseInstaller | None = None  # until there are releases
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self._failure: BaseException | None = None
        self._rejected: deque[tuple[str, str]] = deque(maxlen=64)  # reasons already logged, by run
        self._unsafe: deque[tuple[str, str]] = deque(maxlen=64)  # manifests whose plans failed the inspection, and why

    def start(self) -> None:
        """Start the thread, which ends with the process, once the installed releases were checked."""
        if has_releases(Path(self._settings.state)):
            self._installer().repair()
        self._thread.start()

    def require_running(self) -> None:
        """Raise TrainingFailed if the thread has died: a device must not stay online without training."""
        if self._failure is not None:
            raise TrainingFailed(
                f"the executor ended unexpectedly, with {type(self._failure).__name__}: {self._failure}; "
                "start moonfed-client again"
            ) from self._failure

    def end(self) -> None:
        """Kill the worker. Decline nothing: this device may soon return and go on with its assignment."""
        self._transfers.ending.set()
        self._worker.end()

    def join(self) -> None:
        """Wait for the thread after `end`, so that another executor may use the state directory."""
        self._inbox.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            if not self._transfers.ending.is_set():
                _log.exception("the executor ended unexpectedly")
            self._failure = error
            self._connection.close()  # ends the session's stream; the session then calls require_running

    def _work(self) -> None:
        self._collect_garbage()
        if self._releases:
            self._releases.report_repairs()
            for name in self._releases.refused():
                self._checks.note_release(name, refused=True)
        worked = time.monotonic()
        while not self._transfers.ending.is_set():
            task = self._inbox.next_task(self._checks.pause(IDLE_SECONDS))
            self._checks.recheck(self._inbox)
            if task is None:
                if time.monotonic() - worked >= IDLE_SECONDS:
                    worked = time.monotonic()
                    self._worker.end()
                    self._collect_garbage()
            else:
                with log_fields(**getattr(task, "log_fields", {})):
                    self._execute(task)
                worked = time.monotonic()

    def _execute(self, task: Task) -> None:
        if isinstance(task, RunEnded):
            self._end_run(task)
        elif isinstance(task, EligibilityCheck):
            self._checks.answer(task)
        elif isinstance(task, EvaluationTask):
            self._evaluations.answer(task)
        elif isinstance(task, TargetRelease):
            outcome = self._installer().process(task)
            self._checks.note_release(task.name, refused=outcome not in (None, "installed"))
        else:
            self._process(task)

    def _installer(self) -> ReleaseInstaller:
        if self._releases is None:
            from moonfed.edge_client.agent.releases import ReleaseInstaller

            self._releases = ReleaseInstaller(
                self._settings, self._connection, self._worker, self._inbox, self._transfers, self._fingerprint
            )
        return self._releases

    def _process(self, assignment: Assignment) -> None:
        try:
            context = parse_traceparent(assignment.traceparent)
            with tracing.span("device round", context, device=self._settings.device, **assignment.log_fields):
                self._deliver(assignment)
        except Superseded as reason:
            _log.info("%s: dropped: %s", assignment, reason)
            self._count("dropped")
        except (UntrustedBundle, UnsafePlan) as error:
            self._reject(assignment, error)
        except UNFIT as error:
            self._decline(assignment, str(error), permanent=True)
        except MoonfedError as error:
            self._decline(assignment, str(error))
        except Exception as error:  # the next round may succeed
            if not self._transfers.ending.is_set():
                _log.exception("%s: unexpected error on this device", assignment)
            self._decline(assignment, f"unexpected error on the device: {type(error).__name__}")

    def _end_run(self, ended: RunEnded) -> None:
        """Delete a run's state; until then the device names the run when it connects, and is told again."""
        try:
            keep_local_model(self._runs.parent, ended.run)
        except (MoonfedError, OSError) as error:
            _log.warning("cannot keep this device's model of run %s for evaluations: %s", ended.run, error)
        try:
            self._delete_other_globals([])
            drop_run(self._runs, ended.run, self._blobs.root)
        except (InvalidInput, OSError) as error:
            _log.warning("run %s has ended; its files cannot be removed: %s", ended.run, error)
        else:
            _log.info("run %s has ended; deleted its files, except for this device's latest model", ended.run)

    def _deliver(self, assignment: Assignment) -> None:
        began = time.monotonic()
        run = RunState(self._runs, assignment.id.run, manifest=assignment.manifest.sha256, seed=assignment.seed)
        run.delete_foreign_rounds(assignment.id.round, assignment.id.attempt)
        stored = self._find(assignment, run)
        if stored:
            _log.info("%s: assigned again; it is already trained", assignment)
        else:
            stored = self._train(assignment, run)
        outcome = self._submit(assignment, stored)
        self._count(outcome, assignment.id.round, time.monotonic() - began, stored.update.metrics.get("loss"))

    def _count(self, outcome: RoundOutcome, round_: int = 0, seconds: float = 0.0, loss: float | None = None) -> None:
        if self._metrics:
            self._metrics.round_ended(outcome, round_, seconds, loss)

    def _find(self, assignment: Assignment, run: RunState) -> StoredRound | None:
        return run.find(assignment.id.round, assignment.id.attempt, self._digest(assignment))

    def _digest(self, assignment: Assignment) -> str:
        return assignment.digest(self._settings.max_steps, self._settings.max_seconds, self._between)

    def _train(self, assignment: Assignment, run: RunState) -> StoredRound:
        if reason := dict(self._unsafe).get(assignment.manifest.sha256):
            raise UnsafePlan(reason)
        progress = ProgressReporter(assignment, self._connection, self._inbox)
        with tracing.span("download"):
            job = self._prepare(assignment, progress.should_fetch)
        progress.begin_training()
        try:
            with tracing.span("train"):
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
        _log.info("%s: trained on %d samples in %d steps, loss %.4f", assignment, stored.update.samples,
                 stored.update.steps, stored.update.metrics["loss"])  # fmt: skip
        return stored

    def _verify(self, signature: BlobRef | None, manifest: BlobRef) -> Statement:
        """Fetch and verify a bundle's signature; UntrustedBundle if this device does not accept the bundle."""
        content = self._transfers.fetch_untrusted(require_signature(signature, manifest), self._blobs)
        statement = accept(Path(self._settings.state), content, manifest.sha256, time.time())
        store_blob(self._blobs, content)
        return statement

    def _prepare(self, assignment: Assignment, should_continue: Callable[[], bool] = lambda: True) -> Job:
        """Verify the bundle and fetch what training needs.

        `should_continue` returns whether the round still needs this device. Raises UntrustedBundle for a bundle that
        this device does not accept, VersionMismatch for a plan that it cannot run.
        """
        self._settings.require_data()
        statement = self._verify(assignment.signature, assignment.manifest)
        _log.info("%s: assigned", assignment)
        manifest_file = self._transfers.fetch(assignment.manifest, self._blobs)
        os.utime(manifest_file)  # for collect_garbage
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_name(statement, manifest.name)
        interface = require_runnable(manifest, self._settings.plan_interfaces, assignment.required_plan)
        plan = manifest.files[PLAN_NAMES[interface]]
        _require_known_roles(assignment, manifest)
        _require_sizes(assignment.blobs, manifest)
        _require_signed_training(assignment, manifest)
        self._delete_other_globals(assignment.blobs.values())
        require_disk(assignment, manifest, plan, self._blobs, self._globals)
        plan_file = self._transfers.fetch(plan, self._blobs, should_continue=should_continue)
        os.utime(plan_file)
        parts = fetch_parts(self._transfers, manifest, self._blobs, should_continue)
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
            plan_interface=interface,
            files={role: str(file) for role, file in files.items()},
            parts=parts,
            counted=assignment.counted,
            encodings=assignment.encodings,
            clip_norm=assignment.clip_norm,
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

    def _submit(self, assignment: Assignment, stored: StoredRound) -> RoundOutcome:
        try:
            with tracing.span("upload", bytes=sum(ref.size for ref, _ in stored.outgoing.values())):
                self._transfers.submit(assignment, stored)
        except TooLate as error:
            _log.info("%s: too late: %s", assignment, with_reference(f"{error}{retry_advice(error)}", error.slug),
                     extra={"docs": error.docs})  # fmt: skip
            return "late"
        except REJECTIONS as error:
            if not self._transfers.ending.is_set():
                _log.warning("%s: the coordinator rejected the update: %s", assignment, explained(error),
                            extra={"docs": error.docs})  # fmt: skip
            return "rejected"
        _log.info("%s: submitted", assignment)
        return "counted"

    def _reject(self, assignment: Assignment, error: MoonfedError) -> None:
        """Decline every round of a run whose bundle or plan this device does not accept; log that once."""
        reason = str(error)
        if (assignment.run, reason) not in self._rejected and not self._transfers.ending.is_set():
            self._rejected.append((assignment.run, reason))
            _log.error("run %s: %s: %s", assignment.run, REJECTED, explained(error), extra={"docs": error.docs})
        self._report_decline(assignment, reason, permanent=True)

    def _decline(self, assignment: Assignment, reason: str, *, permanent: bool = False) -> None:
        if not self._transfers.ending.is_set():
            _log.warning("%s: declined: %s", assignment, reason)
        self._report_decline(assignment, reason, permanent=permanent)

    def _report_decline(self, assignment: Assignment, reason: str, *, permanent: bool) -> None:
        if self._transfers.ending.is_set():
            return
        self._count("declined")
        public = without_paths(reason, [self._settings.data, self._settings.state])
        outdated = self._checks.is_outdated()  # then it declines this round only, and is asked about the run again
        if permanent and not outdated:
            self._checks.declined(assignment)
        try:
            self._connection.decline(assignment, public, permanent=permanent and not outdated)
        except Exception as error:  # the round then ends without this device, at its deadline
            _log.warning("%s: cannot tell the coordinator that this device declined: %s", assignment, error)

    def _collect_garbage(self) -> None:
        try:
            collect_garbage(self._runs, self._blobs.root)
            remove_partial_local_models(self._runs.parent)
        except OSError as error:
            _log.warning("cannot remove unused files: %s", error)

    def _delete_other_globals(self, kept: Iterable[BlobRef]) -> None:
        keep_only(self._globals.root, {ref.sha256 for ref in kept})


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
            raise InvalidInput(
                f"the {role} of the assignment has {ref.size} bytes; it must be at most {limit}",
                field=f"size of the {role}",
                value=ref.size,
            )


def _require_signed_training(assignment: Assignment, manifest: Manifest) -> None:
    """Raise InvalidInput unless the training equals that of the signed manifest for the round.

    Otherwise the coordinator could choose batches of one sample, whose gradients reveal much about the sample.
    """
    signed, given = (spec.to_document() for spec in (manifest.training_at(assignment.id.round), assignment.training))
    for name, value in signed.items():
        if given[name] != value:
            raise InvalidInput(f"{name} of the assignment is {given[name]}; the signed manifest has {value}")
