"""Checks of runs against this device's trust, software, data and memory, outside any round, and their answers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from moonfed.blobs.store import BlobDirectory
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.agent.compatibility import REJECTED, require_runnable, require_signature
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.fingerprint import REFUSED, DeviceFingerprint
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.redact import without_paths
from moonfed.edge_client.agent.transfers import FETCH_ERRORS, REJECTIONS, BlobTransfers, Superseded, WindowClosed
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.state.gc import store_blob
from moonfed.edge_client.state.trust import would_accept
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings
from moonfed.errors import MoonfedError, TrainingFailed, UntrustedBundle, explained
from moonfed.fleet.assignment import Assignment, EligibilityCheck
from moonfed.fleet.class_bits import pack_classes
from moonfed.signing.bundle_signature import require_name

RECHECK_SECONDS = 5 * 60.0  # between checks whether the reason for being ineligible is gone
LOOK_SECONDS = 5.0  # between looks whether the data have changed, while the device is ineligible
LOOK_SHARE = 0.02  # of the time, at most, that looks take
INELIGIBLE_KEPT = 256  # runs; those beyond are checked again when the device connects
Fetched = TypeVar("Fetched")

_log = logging.getLogger(__name__)


class _Unchecked(Exception):
    """The run cannot be checked now."""


UNANSWERED: tuple[type[Exception], ...] = (_Unchecked, *REJECTIONS)


class EligibilityChecks:
    """This device's answers to checks. All calls must come from the executor's thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        transfers: BlobTransfers,
        fingerprint: DeviceFingerprint,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._worker = worker
        self._transfers, self._fingerprint = transfers, fingerprint
        self._blobs = BlobDirectory(Path(settings.state) / "blobs")
        self._ineligible: dict[str, tuple[EligibilityCheck, bool]] = {}  # by run; True: as it is, it may yet succeed
        self._refused: set[str] = set()  # models of which this device has refused a version
        self._report_classes: set[str] = set()  # runs that ask which classes it has
        self._recheck_at = time.monotonic() + RECHECK_SECONDS
        self._look_at = 0.0

    def answer(self, check: EligibilityCheck) -> None:
        """Check a run, and report whether this device is eligible."""
        (self._report_classes.add if check.report_classes else self._report_classes.discard)(check.run)
        fingerprint = self._fingerprint.announced
        try:
            reason, classes = self._findings(check)
            if fingerprint != self._fingerprint.announced:
                _log.info("%s: the data or limits have changed during the check; the coordinator asks again", check)
            if not self._transfers.ending.is_set():
                public = without_paths(reason, [self._settings.data, self._settings.state])
                self._transfers.call(lambda: self._connection.report_eligibility(check, fingerprint, public, classes))
        except (Superseded, WindowClosed) as error:  # after that, the coordinator asks again
            _log.info("%s: not checked: %s", check, error)
        except UNANSWERED as error:
            self._note(check, may_succeed=True)
            _log.info("%s: not checked; retrying later: %s", check, error)

    def is_outdated(self) -> bool:
        """Return True if the coordinator holds answers for other data or limits; the device then connects again."""
        if not self._fingerprint.has_changed():
            return False
        self._ineligible.clear()
        self._refused.clear()
        self._connection.restart_session()
        return True

    def note_release(self, name: str, *, refused: bool) -> None:
        """Note whether this device refuses a version of a model; other data may change that."""
        (self._refused.add if refused else self._refused.discard)(name)
        self._remember()

    def declined(self, assignment: Assignment) -> None:
        """Note that this device has permanently declined a run."""
        check = EligibilityCheck(
            run=assignment.run,
            manifest=assignment.manifest,
            signature=assignment.signature,
            report_classes=assignment.run in self._report_classes,
            required_plan=assignment.required_plan,
        )
        self._note(check, may_succeed=not self._fingerprint.covers_data)

    def _note(self, check: EligibilityCheck, *, may_succeed: bool) -> None:
        """Note a run for which this device is ineligible, instead of the oldest one if there are many."""
        self._ineligible.pop(check.run, None)
        self._ineligible[check.run] = check, may_succeed
        if len(self._ineligible) > INELIGIBLE_KEPT:
            del self._ineligible[next(iter(self._ineligible))]
        self._remember()

    def _remember(self) -> None:
        """Note for the next start whether this device has refused anything; if it cannot, that start asks nothing."""
        file = Path(self._settings.state, REFUSED)
        with suppress(OSError):
            file.touch(mode=0o600) if self._ineligible or self._refused else file.unlink(missing_ok=True)

    def pause(self, longest: float) -> float:
        """Return the seconds after which `recheck` is due: soon if data that change could make the device eligible."""
        return min(longest, LOOK_SECONDS) if self._ineligible or self._refused else longest

    def recheck(self, inbox: Inbox) -> None:
        """Look whether the data or limits have changed if this device has refused a run or release.

        It looks every LOOK_SECONDS. If so, it connects again, and is asked about all of them. Otherwise it checks
        again, every RECHECK_SECONDS, the runs for which it is ineligible for a reason that may pass.
        """
        began = time.monotonic()
        if not (self._ineligible or self._refused) or began < self._look_at:
            return
        if not self.is_outdated() and began >= self._recheck_at:
            self._recheck_at = began + RECHECK_SECONDS
            for check, may_succeed in self._ineligible.values():
                if may_succeed:
                    inbox.put(check)
        end = time.monotonic()
        self._look_at = end + max(LOOK_SECONDS, (end - began) / LOOK_SHARE)

    def _findings(self, check: EligibilityCheck) -> tuple[str, bytes]:
        """Return why this device is ineligible, empty if it is eligible, and its classes, if they are asked for."""
        try:
            manifest, counts = self._check(check)
        except (Superseded, WindowClosed, _Unchecked):
            raise
        except Exception as error:
            reason, may_succeed = self._explained(check, error)
            self._note(check, may_succeed=may_succeed)
            return reason, b""
        self._ineligible.pop(check.run, None)
        self._remember()
        _log.info("%s: this device is eligible, with %d samples to train on", check, counts.samples)
        return "", pack_classes(counts.classes, len(manifest.classes)) if check.report_classes else b""

    def _explained(self, check: EligibilityCheck, error: Exception) -> tuple[str, bool]:
        """Log why this device is ineligible; return the reason, and whether another check may succeed as things are."""
        reason, crashed = str(error), isinstance(error, TrainingFailed)
        if isinstance(error, UntrustedBundle):
            _log.error("%s: %s: %s", check, REJECTED, explained(error), extra={"docs": error.docs})
            return reason, False
        if not isinstance(error, MoonfedError):
            reason, crashed = f"unexpected error on the device: {type(error).__name__}", True
            if not self._transfers.ending.is_set():
                _log.exception("%s: unexpected error on this device", check)
        elif not self._transfers.ending.is_set():
            _log.warning("%s: this device is not eligible: %s", check, error)
        return reason, crashed or not self._fingerprint.covers_data

    def _check(self, check: EligibilityCheck) -> tuple[Manifest, SampleCounts]:
        """Raise the reason why this device cannot train the run's bundle."""
        self._settings.require_data()
        signature = require_signature(check.signature, check.manifest)
        content = self._checkable(lambda: self._transfers.fetch_untrusted(signature, self._blobs))
        statement = would_accept(Path(self._settings.state), content, check.manifest.sha256, time.time())
        store_blob(self._blobs, content)
        manifest_file = self._checkable(lambda: self._transfers.fetch(check.manifest, self._blobs))
        os.utime(manifest_file)  # for collect_garbage
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_name(statement, manifest.name)
        interface = require_runnable(manifest, self._settings.plan_interfaces, check.required_plan)
        return manifest, self._worker.check_run(str(manifest_file), interface)

    def _checkable(self, fetch: Callable[[], Fetched]) -> Fetched:
        try:
            return fetch()
        except WindowClosed:
            raise
        except FETCH_ERRORS as error:
            raise _Unchecked(str(error)) from error
