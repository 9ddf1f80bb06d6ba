"""The session: stays connected within the training window and passes tasks to the executor."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from moonfed.edge_client.agent.compatibility import describe_platform
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import keep_identity, pending_key
from moonfed.edge_client.agent.executor import Executor
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.training_window import TrainingWindow, now
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.state.gc import kept_runs
from moonfed.edge_client.state.round_store import newest_samples
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import Denied, InvalidInput, MoonfedError, Unavailable, Untrusted, VersionMismatch
from moonfed.fleet_messages import read_assignment, read_run_ended
from moonfed.identity import Identity, key_bytes
from moonfed.transport import Backoff
from moonfed.v1 import fleet_pb2

LONGEST_ATTEND = 24 * 3600.0  # seconds; fresh calls survive NATs and proxies that break long streams
LONGEST_REST = 30.0  # seconds between two checks of the clock, which may be set meanwhile
RENEWAL_RETRY = 3600.0  # seconds between two tries to renew a certificate
# A shorter session does not reset the backoff: two devices with one name would evict each other in a tight loop.
STEADY_SECONDS = 60.0
FINAL = (Denied, InvalidInput, Untrusted, VersionMismatch)  # retrying is pointless

log = logging.getLogger(__name__)


class Session:
    """One device's attendance at one coordinator."""

    def __init__(
        self,
        settings: WorkerSettings,
        link: FleetConnection,
        child: WorkerProcess,
        window: TrainingWindow | None = None,
    ) -> None:
        """`window`: when the device is online and trains; None: always."""
        self._state, self._link, self._window = Path(settings.state), link, window
        self._platform = describe_platform(settings.accelerator, settings.threads)
        self._labels = settings.labels
        self._child, self._inbox = child, Inbox()
        self._work = Executor(settings, link, child, self._inbox, window)
        self._backoff = Backoff()
        self._away = False  # whether the log already says that the coordinator is unreachable
        self._resting = False  # whether the log already says that the window is closed

    def run(self) -> None:
        """Stay online until a final error, which is raised, or until a signal's exception."""
        try:
            self._child.check()
            self._work.start()
            while True:
                self._work.require_running()
                self._renew_if_due()
                if self._may_attend():
                    self._resting = False
                    self._attend_once()
                else:
                    self._rest()
        finally:
            self._work.end()
            self._link.close()

    def _may_attend(self) -> bool:
        """Return whether to be online: within the window, and until work begun in it is submitted."""
        return self._window is None or self._window.contains(now()) or not self._inbox.idle()

    def _rest(self) -> None:
        """Wait for the window to open, or until something else may be due."""
        assert self._window is not None  # noqa: S101 - else the device may attend
        self._link.attending.clear()
        seconds = self._window.seconds_until_open(now())
        if not self._resting:
            back = (now() + timedelta(seconds=seconds)).astimezone(self._window.zone)
            log.info("outside the training window %s; reconnecting on %s", self._window, f"{back:%Y-%m-%d at %H:%M}")
            self._resting = True
        time.sleep(min(seconds, self._attend_seconds(), LONGEST_REST))

    def _attend_once(self) -> None:
        began = time.monotonic()
        runs = self._state / "runs"
        wanted = self._may_attend if self._window else None
        try:
            samples, kept = newest_samples(runs), kept_runs(runs)
            seconds = self._attend_seconds()
            for reply in self._link.attend(self._platform, samples, seconds, kept, wanted, self._labels):
                self._hear(reply)
            return
        except MoonfedError as error:
            reason = error
        self._link.attending.clear()
        self._work.require_running()
        if isinstance(reason, FINAL):
            raise reason
        self._say_away(reason)
        if time.monotonic() - began > STEADY_SECONDS:
            self._backoff.reset()
        time.sleep(self._backoff.next())

    def _hear(self, reply: fleet_pb2.ConnectReply) -> None:
        if reply.HasField("welcome"):
            self._welcomed(reply.welcome)
            return
        what = "an ended run" if reply.HasField("ended") else "an assignment"
        try:
            self._inbox.put(
                read_run_ended(reply.ended) if reply.HasField("ended") else read_assignment(reply.assignment)
            )
        except InvalidInput as error:
            log.warning("%s is invalid and ignored: %s", what, error)

    def _welcomed(self, welcome: fleet_pb2.Welcome) -> None:
        if not self._link.attending.is_set():
            again = "re" if self._away else ""
            log.info("%sconnected to the coordinator at %s (moonfed %s) as %s", again, self._link.address,
                     welcome.coordinator, self._link.device)  # fmt: skip
        self._away = False
        self._link.attending.set()

    def _say_away(self, reason: MoonfedError) -> None:
        """Log that the coordinator is unreachable, once per absence."""
        if not self._away:
            what = "is unreachable" if isinstance(reason, Unavailable) else "rejects this device"
            log.warning("the coordinator %s; retrying: %s", what, reason)
            self._away = True

    def _attend_seconds(self) -> float:
        """Return the seconds until the certificate's renewal is due, or is retried, within limits."""
        identity = self._link.identity
        if identity is None:
            return LONGEST_ATTEND
        now = datetime.now(timezone.utc)
        if now < identity.renewal:
            return min((identity.renewal - now).total_seconds(), LONGEST_ATTEND)
        # However short a certificate's life, several attempts fit into the rest of it.
        return min(max((identity.expires - now).total_seconds() / 4, 1.0), RENEWAL_RETRY)

    def _renew_if_due(self) -> None:
        """Renew the certificate if it is due; raise Untrusted if it has expired."""
        identity = self._link.identity
        if identity is None:
            return
        identity.require_valid()
        if not identity.is_due_for_renewal():
            return
        try:
            renewed = self._renew(identity)
        except FINAL:
            raise
        except Unavailable as error:  # the session logs it, once
            log.debug("the certificate is not renewed yet: %s", error)
        except (MoonfedError, OSError) as error:  # such as a full disk, here or there
            log.warning("retrying later to renew the certificate, which is valid until %s: %s", _when(identity), error)
        else:
            self._link.reopen(renewed)
            log.info("renewed the certificate; it is valid until %s", _when(renewed))

    def _renew(self, identity: Identity) -> Identity:
        key = pending_key(self._state)
        certificate = self._link.renew(key)
        return keep_identity(
            self._state, address=identity.address, ca=identity.ca, certificate=certificate, key=key_bytes(key)
        )


def _when(identity: Identity) -> str:
    return f"{identity.expires:%Y-%m-%d %H:%M} UTC"
