"""What a device does with an assignment: fetch, check, train in the child, submit; or decline with a reason."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from edge_client.assignment import Assignment, Inbox
from edge_client.child import Child
from edge_client.link import Link
from edge_client.messages import Job, WorkerSettings
from edge_client.reasons import without_paths
from edge_client.state import RunState, StoredRound, tidy
from edge_client.versions import require_runnable
from edge_client.watch import Watch
from moonfed.blobs import BlobDirectory, BlobRef
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    InvalidInput,
    MoonfedError,
    NotFound,
    ResourceExhausted,
    TrainingFailed,
    Unavailable,
    Untrusted,
    VersionMismatch,
    WrongState,
)
from moonfed.manifest import MODEL, PLAN_FILE, Manifest
from moonfed.transport import Backoff

IDLE_SECONDS = 5 * 60.0  # without work, after which the child ends and its memory is free

Result = TypeVar("Result")
Kinds = tuple[type[MoonfedError], ...]
AWAY: Kinds = (Unavailable, Untrusted)  # the attending thread tells the operator, and whether it is final
REFUSALS: Kinds = (AlreadyExists, Denied, InvalidInput, NotFound, VersionMismatch, WrongState)
# Of a fetch, beside refusals: bytes that need a fresh copy, and a full disk of this device.
UNFETCHED: Kinds = (*REFUSALS, Corrupt, ResourceExhausted)
log = logging.getLogger(__name__)


class Superseded(Exception):
    """The coordinator no longer wants the current assignment."""


class Work:
    """One thread that works on assignments, one after the other, while another thread attends."""

    def __init__(self, settings: WorkerSettings, link: Link, child: Child, inbox: Inbox) -> None:
        state = Path(settings.state)
        self._settings, self._runs = settings, state / "runs"
        self._blobs = BlobDirectory(state / "blobs")  # manifests and plans, small; fetched once
        self._globals = BlobDirectory(state / "models")  # global models and state, each of use in one round
        self._link, self._child, self._inbox = link, child, inbox
        self._ending = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Starts the thread, which ends with the process."""
        threading.Thread(target=self._run, name="work", daemon=True).start()

    def require_running(self) -> None:
        """Raises TrainingFailed if the thread has ended by surprise: a device must not attend and never train."""
        if self._failure is not None:
            raise TrainingFailed(
                f"the device's work ended unexpectedly, with {type(self._failure).__name__}: {self._failure}; "
                "start the device again"
            ) from self._failure

    def end(self) -> None:
        """Ends the child; nothing is declined, so that the coordinator may wait for this device to come back."""
        self._ending.set()
        self._child.end()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            if not self._ending.is_set():
                log.exception("the device's work ended unexpectedly")
            self._failure = error
            self._link.close()  # ends the attendance; the session then asks require_running

    def _work(self) -> None:
        self._tidy()
        while not self._ending.is_set():
            assignment = self._inbox.take(IDLE_SECONDS)
            if assignment is None:
                self._child.end()
                self._tidy()
                continue
            try:
                self._deliver(assignment)
            except Superseded as reason:
                log.info("%s: dropped: %s", assignment, reason)
            except MoonfedError as error:
                self._decline(assignment, str(error))
            except Exception as error:  # whatever it is, the next round may go better
                if not self._ending.is_set():
                    log.exception("%s: unexpected trouble on this device", assignment)
                self._decline(assignment, f"unexpected trouble on the device: {type(error).__name__}")

    def _deliver(self, assignment: Assignment) -> None:
        run = RunState(self._runs, assignment.run, manifest=assignment.manifest.sha256, seed=assignment.seed)
        run.forget_others(assignment.round, assignment.attempt)
        stored = self._find(assignment, run)
        if stored:
            log.info("%s: assigned again; it is already trained", assignment)
        else:
            log.info("%s: assigned", assignment)
            stored = self._train(assignment, run)
        self._submit(assignment, stored)

    def _find(self, assignment: Assignment, run: RunState) -> StoredRound | None:
        return run.find(assignment.round, assignment.attempt, assignment.digest(self._settings.max_steps))

    def _train(self, assignment: Assignment, run: RunState) -> StoredRound:
        job = self._prepare(assignment)
        if not self._child.train(job, Watch(assignment, self._link, self._inbox).wants):
            raise Superseded("training was stopped")
        self._keep_globals([])  # they have served
        stored = self._find(assignment, run)
        if stored is None:
            raise Corrupt("the trained model cannot be read back; the disk may be damaged")
        log.info("%s: trained on %d samples in %d steps, loss %.4f", assignment, stored.update.samples,
                 stored.update.steps, stored.update.metrics["loss"])  # fmt: skip
        return stored

    def _prepare(self, assignment: Assignment) -> Job:
        """Fetches what training needs; raises VersionMismatch if this device cannot run the plan."""
        manifest_file = self._fetch(assignment.manifest, self._blobs)
        os.utime(manifest_file)  # for tidy
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_runnable(manifest)
        _require_known_roles(assignment, manifest)
        plan_file = self._fetch(manifest.files[PLAN_FILE], self._blobs)
        os.utime(plan_file)
        self._keep_globals(assignment.blobs.values())
        files = {role: self._fetch(ref, self._globals) for role, ref in assignment.blobs.items()}
        return Job(
            run=assignment.run,
            round=assignment.round,
            attempt=assignment.attempt,
            epochs=assignment.epochs,
            batch_size=assignment.batch_size,
            hyperparameters=assignment.hyperparameters,
            seed=assignment.seed,
            digest=assignment.digest(self._settings.max_steps),
            manifest_file=str(manifest_file),
            plan_file=str(plan_file),
            files={role: str(file) for role, file in files.items()},
            views=assignment.views,
            max_steps=self._settings.max_steps,
            counted_round=assignment.counted_round,
            counted_attempt=assignment.counted_attempt,
        )

    def _fetch(self, ref: BlobRef, blobs: BlobDirectory) -> Path:
        try:
            return self._patiently(lambda: self._link.fetch(ref, blobs, self._wanted), UNFETCHED)
        except Corrupt as error:  # on the way, or on this disk: a fresh copy mends both
            log.warning("%s; fetching it again", error)
            blobs.path(ref.sha256).unlink(missing_ok=True)
            return self._patiently(lambda: self._link.fetch(ref, blobs, self._wanted), UNFETCHED)

    def _submit(self, assignment: Assignment, stored: StoredRound) -> None:
        try:
            self._patiently(lambda: self._link.submit(assignment, stored, self._wanted), REFUSALS)
        except REFUSALS as error:
            if not self._ending.is_set():
                log.warning("%s: the coordinator refused the update: %s", assignment, error)
            return
        log.info("%s: submitted", assignment)

    def _patiently(self, action: Callable[[], Result], final: Kinds) -> Result:
        """Tries until it succeeds, the trouble is a final one, or the coordinator wants something newer.

        A coordinator's trouble passes: its disk has room again, it is restarted, a problem of its own is mended.
        """
        backoff, told = Backoff(), ""
        while True:
            try:
                return action()
            except final:
                raise
            except MoonfedError as error:
                if not isinstance(error, AWAY) and str(error) != told:
                    told = str(error)
                    log.warning("trying again, because the coordinator cannot serve this device at present: %s", told)
            self._wait(backoff.next())
            while not self._link.attending.is_set():
                self._wait(1.0)

    def _wanted(self) -> bool:
        return not (self._inbox.superseded() or self._ending.is_set())

    def _wait(self, seconds: float) -> None:
        if self._inbox.superseded(seconds):
            raise Superseded("there is a newer assignment")
        if self._ending.is_set():
            raise Superseded("this device is shutting down")

    def _decline(self, assignment: Assignment, reason: str) -> None:
        if self._ending.is_set():
            return
        log.warning("%s: declined: %s", assignment, reason)
        try:
            self._link.decline(assignment, without_paths(reason, [self._settings.data, self._settings.state]))
        except Exception as error:  # the round then ends without this device, at its deadline
            log.warning("%s: the coordinator could not be told: %s", assignment, error)

    def _tidy(self) -> None:
        try:
            tidy(self._runs, self._blobs.root)
        except OSError as error:
            log.warning("what is no longer used cannot be removed from the disk: %s", error)

    def _keep_globals(self, wanted: Iterable[BlobRef]) -> None:
        names = {ref.sha256 for ref in wanted}
        for file in self._globals.root.glob("*/*"):
            if file.name not in names:
                file.unlink()


def _require_known_roles(assignment: Assignment, manifest: Manifest) -> None:
    unknown = sorted(set(assignment.blobs) - {MODEL, *manifest.downlink})
    if unknown:
        allowed = ", ".join([MODEL, *manifest.downlink])
        raise InvalidInput(f"the assignment has a blob {unknown[0]!r}; the manifest's downlink knows {allowed}")
