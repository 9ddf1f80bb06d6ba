"""The session: stays connected within the training window and passes tasks to the executor."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from moonfed.edge_client.agent.compatibility import describe_platform
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import pending_key, store_identity
from moonfed.edge_client.agent.executor import Executor
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.first_contact import FirstContact
from moonfed.edge_client.agent.inbox import Inbox, Task
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.state.gc import kept_runs
from moonfed.edge_client.state.repository import has_releases
from moonfed.edge_client.state.round_store import newest_samples
from moonfed.edge_client.training_window import TrainingWindow, now
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import (
    Denied,
    InvalidInput,
    MoonfedError,
    NotFound,
    Renamed,
    Unavailable,
    Untrusted,
    VersionMismatch,
    WrongServer,
)
from moonfed.fleet.messages import read_assignment, read_check, read_evaluation, read_run_ended, read_target
from moonfed.fleet.target_release import InstalledRelease
from moonfed.labels import INFERENCE_ONLY
from moonfed.transport.client import Backoff
from moonfed.transport.identity import Identity, key_bytes
from moonfed.v1 import fleet_pb2
from moonfed.validate import require
from moonfed.version import RELEASE

if TYPE_CHECKING:
    from moonfed.edge_client.agent.device_metrics import DeviceMetrics

MAX_SESSION_SECONDS = 24 * 3600.0  # fresh calls survive NATs and proxies that break long streams
MAX_WAIT_SECONDS = 30.0  # between two checks of the clock, which may be set in the meantime
RENEWAL_RETRY = 3600.0  # seconds between two attempts to renew a certificate
# A shorter session does not reset the backoff: two devices with one name would evict each other in a tight loop.
STEADY_SECONDS = 60.0
MAX_TASK_BYTES = 1 << 14  # of a message; an assignment has about a thousand
EXPIRED_ATTEMPTS = 3  # rejected ones, after which a certificate that seems to have expired has; the clock may jump
FINAL = (Denied, InvalidInput, Untrusted, VersionMismatch)  # retrying is pointless
SUBJECTS = {
    "assignment": "an assignment",
    "check": "a check",
    "evaluation": "an evaluation",
    "ended": "an ended run",
    "target": "a target release",
}

_log = logging.getLogger(__name__)


class Session:
    """One device's session with its coordinator."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        window: TrainingWindow | None = None,
        metrics: DeviceMetrics | None = None,
    ) -> None:
        """`window`: when the device is online and trains; None: always. `metrics`: written while the session lasts."""
        self._metrics = metrics
        self._state = Path(settings.state)
        self._connection = connection
        self._window = window
        self._platform = describe_platform(settings.accelerator, settings.threads, inference_only=not settings.data)
        self._labels, self._plan_interfaces = settings.labels, settings.plan_interfaces
        self._worker, self._inbox = worker, Inbox()
        self._fingerprint = DeviceFingerprint(settings, self._platform)
        self._executor = Executor(settings, connection, worker, self._inbox, self._fingerprint, window, metrics)
        self._backoff = Backoff()
        self._first_contact = FirstContact(self._state, connection.identity)
        self._unreachable = False  # whether the log already says that the coordinator is unreachable
        self._outside_window = False  # whether the log already says that the window is closed
        self._renamed = False  # whether an operator has renamed this device
        self._accepted = False  # whether the coordinator has accepted the certificate since this process started
        self._rejected = 0  # connections in a row that the coordinator rejected, perhaps for an expired certificate
        self._renew_at = 0.0  # not before, by the monotonic clock, if this machine's clock is ahead

    def run(self) -> None:
        """Stay online until a permanent error, which is raised, a signal's exception, or until the device is renamed.

        In the last case, the state directory holds an identity with the new name, for another session.
        """
        if INFERENCE_ONLY in self._platform:
            _log.info("no --data: this device is for inference only; it installs releases, and takes part in no run")
        try:
            self._check_worker()
            self._executor.start()
            if self._metrics:
                self._metrics.start(self._connection.online.is_set)
            while not self._is_renamed():
                self._executor.require_running()
                if self._should_connect():
                    self._outside_window = False
                    self._connect_once()
                else:
                    self._wait_for_window()
        finally:
            if self._metrics:
                self._metrics.stop()
            self._executor.end()
            self._connection.leave()
            self._connection.close()
        self._executor.join()

    def _check_worker(self) -> None:
        """Raise what would fail every round; data that are missing may be mounted later, as while the device runs."""
        try:
            self._worker.check()
        except NotFound as error:
            _log.warning("%s; waiting for it", error)

    def _is_renamed(self) -> bool:
        """Renew the certificate if it is due; return whether this device has another name now."""
        if not self._renamed:
            self._renew_if_due()
        return self._renamed

    def _should_connect(self) -> bool:
        """Return whether to be online: within the window, and afterwards until all work is submitted."""
        return self._window is None or self._window.contains(now()) or not self._inbox.idle()

    def _wait_for_window(self) -> None:
        """Wait for the window to open, or until something else may be due."""
        assert self._window is not None  # noqa: S101 - else the device stays connected
        self._connection.online.clear()
        seconds = self._window.seconds_until_open(now())
        if not self._outside_window:
            back = (now() + timedelta(seconds=seconds)).astimezone(self._window.zone)
            _log.info("outside the training window %s; connecting on %s", self._window, f"{back:%Y-%m-%d at %H:%M}")
            self._outside_window = True
        time.sleep(min(seconds, self._session_seconds(), MAX_WAIT_SECONDS))

    def _connect_once(self) -> None:
        began = time.monotonic()
        runs = self._state / "runs"
        should_stay = self._should_connect if self._window else None
        try:
            samples, kept = newest_samples(runs), kept_runs(runs)
            replies = self._connection.connect(
                self._platform,
                samples,
                self._session_seconds(),
                kept,
                should_stay,
                self._labels,
                self._fingerprint.announce(),
                self._inventory(),
                self._plan_interfaces,
            )
            for reply in replies:
                self._handle(reply)
            return
        except MoonfedError as error:
            reason = error
        self._connection.online.clear()
        self._note_connection()
        self._executor.require_running()
        if isinstance(reason, Renamed) and self._connection.identity:
            if self._try_to_renew(self._connection.identity):
                return
        elif isinstance(reason, FINAL) and not self._may_retry(reason):
            raise reason
        self._log_unreachable(reason)
        if time.monotonic() - began > STEADY_SECONDS:
            self._backoff.reset()
        time.sleep(self._backoff.next())

    def _may_retry(self, reason: MoonfedError) -> bool:
        """Return whether to retry after a final error: another server answered, or this machine's clock may be wrong.

        Only the coordinator knows whether the certificate has expired, but closes the connection without a reason.
        """
        if self._first_contact.may_retry(reason):
            return True
        identity = self._connection.identity
        self._rejected += 1
        return identity is not None and identity.has_expired and self._rejected < EXPIRED_ATTEMPTS

    def _inventory(self) -> list[InstalledRelease]:
        if not has_releases(self._state):
            return []
        from moonfed.edge_client.state.releases import ReleaseStore

        return ReleaseStore(self._state).inventory()

    def _handle(self, reply: fleet_pb2.ConnectReply) -> None:
        if reply.HasField("welcome"):
            self._on_welcome(reply.welcome)
            return
        if reply.WhichOneof("reply") is None:
            _log.info("ignored a message of a kind that only later releases of moonfed than %s know", RELEASE)
            return
        try:
            require(reply.ByteSize() <= MAX_TASK_BYTES, "size", reply.ByteSize(), f"at most {MAX_TASK_BYTES} bytes")
            self._inbox.put(_read(reply))
        except InvalidInput as error:
            _log.warning("%s is invalid and ignored: %s", SUBJECTS[reply.WhichOneof("reply") or ""], error)

    def _on_welcome(self, welcome: fleet_pb2.Welcome) -> None:
        self._first_contact.succeeded()
        self._accepted, self._rejected = True, 0
        if not self._connection.online.is_set():
            again = "re" if self._unreachable else ""
            _log.info("%sconnected to the coordinator at %s (moonfed %s) as %s", again, self._connection.address,
                     welcome.coordinator, self._connection.device)  # fmt: skip
            if (identity := self._connection.identity) and identity.has_expired:
                clock = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
                _log.warning(
                    "this machine's clock says %s, but the coordinator accepts the certificate, which is valid until "
                    "%s; set the clock",
                    clock,
                    _expiry(identity),
                )
        self._unreachable = False
        self._connection.online.set()
        self._note_connection()

    def _note_connection(self) -> None:
        if self._metrics:
            self._metrics.refresh()

    def _log_unreachable(self, reason: MoonfedError) -> None:
        """Log that the coordinator is unavailable, once per outage."""
        if not self._unreachable:
            refusal = "rejects this device" if isinstance(reason, FINAL) else "cannot serve this device now"
            problem = "is unavailable" if isinstance(reason, Unavailable | WrongServer) else refusal
            _log.warning("the coordinator %s; retrying: %s", problem, reason)
            self._unreachable = True

    def _session_seconds(self) -> float:
        """Return the seconds until the certificate is due for renewal or a retry of it, within limits."""
        identity = self._connection.identity
        if identity is None:
            return MAX_SESSION_SECONDS
        now = datetime.now(timezone.utc)
        if now < identity.renewal:
            return min((identity.renewal - now).total_seconds(), MAX_SESSION_SECONDS)
        if identity.has_expired or self._clock_is_ahead():
            return RENEWAL_RETRY
        # several attempts fit, however short the certificate's life is
        return min(max((identity.expires - now).total_seconds() / 4, 1.0), RENEWAL_RETRY)

    def _renew_if_due(self) -> None:
        """Renew the certificate if it is due; one that seems to have expired, once the coordinator has accepted it."""
        identity = self._connection.identity
        if identity is None or not identity.is_due_for_renewal() or self._clock_is_ahead():
            return
        if identity.has_expired and not self._accepted:
            return
        renewed = self._try_to_renew(identity)
        if renewed and not self._renamed:
            self._connection.reopen(renewed)
            _log.info("renewed the certificate; it is valid until %s", _expiry(renewed))
            self._note_clock(renewed)

    def _note_clock(self, renewed: Identity) -> None:
        """Plan the next renewal by the monotonic clock if by this machine's clock a fresh certificate is an old one."""
        if renewed.is_due_for_renewal():
            self._renew_at = time.monotonic() + (renewed.renewal - renewed.begins).total_seconds()

    def _clock_is_ahead(self) -> bool:
        """Return whether the certificate is not due for renewal, whatever this machine's clock says."""
        return time.monotonic() < self._renew_at

    def _try_to_renew(self, identity: Identity) -> Identity | None:
        """Renew the certificate, which has a new name if an operator renamed this device; None if it must wait."""
        try:
            renewed = self._renew(identity)
        except (Unavailable, WrongServer) as error:  # the session logs it, once
            _log.debug("cannot renew the certificate yet: %s", error)
            return None
        except FINAL:
            if identity.has_expired:  # or so it seems: the session decides
                return None
            raise
        except (MoonfedError, OSError) as error:  # such as a full disk, here or there
            _log.warning(
                "retrying later to renew the certificate, which is valid until %s: %s", _expiry(identity), error
            )
            return None
        if renewed.name != identity.name:
            _log.info("an operator renamed this device from %s to %s; continuing under that name", identity.name,
                     renewed.name)  # fmt: skip
            self._renamed = True
        return renewed

    def _renew(self, identity: Identity) -> Identity:
        key = pending_key(self._state)
        certificate = self._connection.renew(key)
        return store_identity(
            self._state, address=identity.address, ca=identity.ca, certificate=certificate, key=key_bytes(key)
        )


def _read(reply: fleet_pb2.ConnectReply) -> Task:
    if reply.HasField("ended"):
        return read_run_ended(reply.ended)
    if reply.HasField("evaluation"):
        return read_evaluation(reply.evaluation)
    if reply.HasField("target"):
        return read_target(reply.target)
    return read_check(reply.check) if reply.HasField("check") else read_assignment(reply.assignment)


def _expiry(identity: Identity) -> str:
    return f"{identity.expires:%Y-%m-%d %H:%M} UTC"
