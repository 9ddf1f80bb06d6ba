"""Heartbeats of a round: progress is logged and reported to the coordinator, whose answer may stop the training."""

from __future__ import annotations

import logging
import time

from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.worker_process import Heartbeat
from moonfed.errors import MoonfedError, NotFound, TooLate, WrongState
from moonfed.fleet.assignment import Assignment

REPORT_SECONDS = 2.0  # between two reports to the coordinator
FETCH_REPORT_SECONDS = 10.0  # between two reports while fetching, when each chunk is a heartbeat

_log = logging.getLogger(__name__)


class ProgressReporter:
    """Reports progress while files are fetched and at each heartbeat, and learns whether to continue."""

    def __init__(self, assignment: Assignment, connection: FleetConnection, inbox: Inbox) -> None:
        self._assignment = assignment
        self._connection = connection
        self._inbox = inbox
        self._epoch = 0
        self._next_report = time.monotonic() + FETCH_REPORT_SECONDS
        self._stopped = False

    def should_fetch(self) -> bool:
        """Return whether to keep fetching the round's files; polled while fetching."""
        return self._report(0.0, FETCH_REPORT_SECONDS)

    def begin_training(self) -> None:
        """Start reporting: the worker is about to train."""
        self._next_report = 0.0

    def should_train(self, heartbeat: Heartbeat | None) -> bool:
        """Return whether training should continue; `heartbeat` is the worker's newest heartbeat, if there is one."""
        if self._inbox.superseded():
            return False
        if heartbeat is None:
            return True
        if heartbeat.epoch > self._epoch:
            self._epoch = heartbeat.epoch
            loss = "" if heartbeat.loss is None else f", loss {heartbeat.loss:.4f}"
            _log.info("%s: epoch %d of %d%s", self._assignment, heartbeat.epoch, self._assignment.training.epochs, loss)
        return self._report(heartbeat.fraction, REPORT_SECONDS)

    def _report(self, fraction: float, pause_seconds: float) -> bool:
        if self._stopped or time.monotonic() < self._next_report or not self._connection.online.is_set():
            return not self._stopped
        self._next_report = time.monotonic() + pause_seconds
        reason: MoonfedError | None
        try:
            reason = self._connection.report(self._assignment, fraction)
        except (WrongState, NotFound) as error:  # the round has closed, or the run has ended
            reason = error
        except MoonfedError as error:
            _log.debug("a report failed: %s", error)
            return True
        if reason:
            _log.info("%s: the coordinator cancelled it: %s%s", self._assignment, reason, retry_advice(reason))
            self._stopped = True
        return not self._stopped


def retry_advice(reason: MoonfedError) -> str:
    """Return the estimated time until the run may need this device, as the rest of a sentence."""
    seconds = reason.retry_after_seconds if isinstance(reason, TooLate) else 0.0
    return f"; it may need this device again in about {seconds:.0f} s" if seconds else ""
