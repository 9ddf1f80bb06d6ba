"""Fetching and submitting with retries, while the task is current and the training window is open."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import Manifest, parts_of
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.edge_client.training_window import TrainingWindow, now
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    InvalidInput,
    MoonfedError,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Untrusted,
    VersionMismatch,
    WrongState,
)
from moonfed.fleet.assignment import Assignment
from moonfed.transport.client import Backoff

Result = TypeVar("Result")
ErrorTypes = tuple[type[MoonfedError], ...]
CONNECTION_ERRORS: ErrorTypes = (Unavailable, Untrusted)  # the session logs it and decides whether it is final
REJECTIONS: ErrorTypes = (AlreadyExists, Denied, InvalidInput, NotFound, VersionMismatch, WrongState)
# A fetch may also fail because of corrupt bytes, or because this device's disk is full.
FETCH_ERRORS: ErrorTypes = (*REJECTIONS, Corrupt, ResourceExhausted)
_log = logging.getLogger(__name__)


class Superseded(Exception):
    """The current task is obsolete."""


class WindowClosed(WrongState):
    """The device's training window has closed."""


class BlobTransfers:
    """The transfers of the inbox's current task."""

    def __init__(self, connection: FleetConnection, inbox: Inbox, window: TrainingWindow | None = None) -> None:
        """`window`: when to fetch; trained updates are submitted at any time."""
        self.ending = threading.Event()  # set when the device shuts down
        self._connection = connection
        self._inbox = inbox
        self._window = window

    def fetch(
        self,
        ref: BlobRef,
        blobs: BlobDirectory,
        *,
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Path:
        """Fetch a blob; return its verified file. Raise Superseded, WindowClosed or one of FETCH_ERRORS.

        `should_continue` is polled; Superseded once it returns False.
        """
        return self._fetch(
            lambda goes_on: self._connection.fetch(ref, blobs, goes_on),
            should_continue,
            lambda: blobs.path(ref.sha256).unlink(missing_ok=True),
        )

    def fetch_untrusted(
        self, ref: BlobRef, blobs: BlobDirectory, *, should_continue: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Return the bytes of a small blob, as `fetch` does, without storing them: nothing vouches for them yet.

        Reads the blob from the directory if an earlier verification has put it there.
        """
        if blobs.has(ref):
            with suppress(Corrupt):
                return blobs.read(ref)
        return self._fetch(lambda goes_on: self._connection.fetch_bytes(ref, goes_on), should_continue)

    def _fetch(
        self,
        fetch: Callable[[Callable[[], bool]], Result],
        should_continue: Callable[[], bool],
        discard: Callable[[], None] = lambda: None,
    ) -> Result:
        def attempt() -> Result:
            self.seconds_open()
            if not should_continue():
                raise Superseded("this work is no longer needed, or more urgent work is waiting")
            return fetch(lambda: self._is_current() and self._is_open() and should_continue())

        try:
            return self._retry(attempt, FETCH_ERRORS)
        except Corrupt as error:  # in transit or on this disk: a fresh copy fixes both
            _log.warning("%s; fetching it again", error)
            discard()
            return self._retry(attempt, FETCH_ERRORS)

    def submit(self, assignment: Assignment, stored: StoredRound) -> None:
        """Submit the update; return once it is durable. Raise Superseded, or one of REJECTIONS."""
        self._retry(lambda: self._connection.submit(assignment, stored, self._is_current), REJECTIONS)

    def call(self, action: Callable[[], None]) -> None:
        """Make a call until it succeeds. Raise Superseded, or one of REJECTIONS."""
        self._retry(action, REJECTIONS)

    def seconds_open(self) -> float | None:
        """Return the seconds until the window closes, None without one; raise WindowClosed outside it."""
        if self._window is None:
            return None
        seconds = self._window.seconds_until_close(now())
        if seconds == 0:
            raise WindowClosed(f"the training window of this device, {self._window}, has closed")
        return seconds

    def may_continue(self) -> bool:
        """Return whether the task is current and the window open."""
        return self._is_current() and self._is_open()

    def _is_open(self) -> bool:
        return self._window is None or self._window.contains(now())

    def _retry(self, action: Callable[[], Result], final: ErrorTypes) -> Result:
        """Retry until success, a final error, or a newer task.

        A coordinator's problems are transient: a full disk, a restart, an internal error.
        """
        backoff, logged = Backoff(), ""
        while True:
            try:
                return action()
            except final:
                raise
            except MoonfedError as error:
                if not isinstance(error, CONNECTION_ERRORS) and str(error) != logged:
                    logged = str(error)
                    _log.warning("retrying; the coordinator is temporarily unable to serve this device: %s", logged)
            self._wait(backoff.next())
            while not self._connection.online.is_set():
                self._wait(1.0)

    def _is_current(self) -> bool:
        return not (self._inbox.superseded() or self.ending.is_set())

    def _wait(self, seconds: float) -> None:
        if self._inbox.superseded(seconds):
            raise Superseded("a newer task of the same run or release has taken its place")
        if self.ending.is_set():
            raise Superseded("this device is shutting down")


def fetch_parts(
    transfers: BlobTransfers, manifest: Manifest, blobs: BlobDirectory, should_continue: Callable[[], bool]
) -> dict[str, str]:
    """Fetch the files of frozen and of personal tensors that are not there yet; return their paths by name."""
    parts: dict[str, str] = {}
    for name, ref in parts_of(manifest).items():
        file = transfers.fetch(ref, blobs, should_continue=should_continue)
        os.utime(file)  # for collect_garbage
        parts[name] = str(file)
    return parts
