"""Watches one round of training in the child: tells the operator and the coordinator, hears whether to stop."""

from __future__ import annotations

import logging
import time

from edge_client.assignment import Assignment, Inbox
from edge_client.child import Sign
from edge_client.link import Link
from moonfed.errors import MoonfedError, NotFound, WrongState

REPORT_SECONDS = 2.0  # between two reports to the coordinator

log = logging.getLogger(__name__)


class Watch:
    """Decides, for each sign of life of the child, whether its round is still wanted."""

    def __init__(self, assignment: Assignment, link: Link, inbox: Inbox) -> None:
        self._assignment, self._link, self._inbox = assignment, link, inbox
        self._epoch = 0
        self._next_report = 0.0

    def wants(self, sign: Sign | None) -> bool:
        """Whether training is to go on; takes the child's newest sign of life, if there is a new one."""
        if self._inbox.superseded():
            return False
        if sign is None:
            return True
        if sign.epoch > self._epoch:
            self._epoch = sign.epoch
            loss = "" if sign.loss is None else f", loss {sign.loss:.4f}"
            log.info("%s: epoch %d of %d%s", self._assignment, sign.epoch, self._assignment.epochs, loss)
        return self._report(sign.fraction)

    def _report(self, fraction: float) -> bool:
        if time.monotonic() < self._next_report or not self._link.attending.is_set():
            return True
        self._next_report = time.monotonic() + REPORT_SECONDS
        try:
            reason = self._link.report(self._assignment, fraction)
        except (WrongState, NotFound) as error:  # the round has closed, or the run has ended
            reason = str(error)
        except MoonfedError as error:
            log.debug("a report failed: %s", error)
            return True
        if reason:
            log.info("%s: the coordinator says stop: %s", self._assignment, reason)
        return reason is None
