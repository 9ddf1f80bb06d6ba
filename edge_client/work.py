"""What a device does with an assignment: fetch, check, train in the child, submit; or decline with a reason."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edge_client.assignment import Assignment, Inbox
from edge_client.child import Child
from edge_client.link import Link
from edge_client.messages import Job
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
from moonfed.manifest import PLAN_FILE, Manifest
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

    def __init__(self, state: Path, link: Link, child: Child, inbox: Inbox) -> None:
        self._runs = state / "runs"
        self._blobs = BlobDirectory(state / "blobs")  # manifests and plans, small; fetched once
        self._models = BlobDirectory(state / "models")  # global models, each of use in one round
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
        run = RunState(self._runs, assignment.run)
        run.forget_later(assignment.round, assignment.attempt)
        stored = run.find(assignment.round, assignment.attempt, assignment.digest)
        if stored:
            log.info("%s: assigned again; it is already trained", assignment)
        else:
            log.info("%s: assigned", assignment)
            stored = self._train(assignment, run)
        self._submit(assignment, stored)

    def _train(self, assignment: Assignment, run: RunState) -> StoredRound:
        job = self._prepare(assignment)
        if not self._child.train(job, Watch(assignment, self._link, self._inbox).wants):
            raise Superseded("training was stopped")
        self._keep_models(None)  # the global model has served
        stored = run.find(assignment.round, assignment.attempt, assignment.digest)
        if stored is None:
            raise Corrupt("the trained model cannot be read back; the disk may be damaged")
        log.info("%s: trained on %d samples, loss %.4f", assignment, stored.update.samples,
                 stored.update.metrics["loss"])  # fmt: skip
        return stored

    def _prepare(self, assignment: Assignment) -> Job:
        """Fetches what training needs; raises VersionMismatch if this device cannot run the plan."""
        manifest_file = self._fetch(assignment.manifest, self._blobs)
        os.utime(manifest_file)  # for tidy
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_runnable(manifest)
        plan_file = self._fetch(manifest.files[PLAN_FILE], self._blobs)
        os.utime(plan_file)
        self._keep_models(assignment.model)
        model_file = self._fetch(assignment.model, self._models)
        return Job(
            run=assignment.run,
            round=assignment.round,
            attempt=assignment.attempt,
            epochs=assignment.epochs,
            batch_size=assignment.batch_size,
            hyperparameters=assignment.hyperparameters,
            seed=assignment.seed,
            digest=assignment.digest,
            manifest_file=str(manifest_file),
            plan_file=str(plan_file),
            model_file=str(model_file),
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
            self._link.decline(assignment, reason)
        except Exception as error:  # the round then ends without this device, at its deadline
            log.warning("%s: the coordinator could not be told: %s", assignment, error)

    def _tidy(self) -> None:
        try:
            tidy(self._runs, self._blobs.root)
        except OSError as error:
            log.warning("what is no longer used cannot be removed from the disk: %s", error)

    def _keep_models(self, wanted: BlobRef | None) -> None:
        for file in self._models.root.glob("*/*"):
            if wanted is None or file.name != wanted.sha256:
                file.unlink()
