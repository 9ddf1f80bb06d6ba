"""A patch for programs in tests, see `forked_process`: a device waits tenths of seconds instead of seconds.

It also logs the number of answers from servers other than its coordinator.
"""

from __future__ import annotations

import logging

from moonfed.edge_client.agent import connection, stream_timeout
from moonfed.edge_client.agent import heartbeat as reports
from moonfed.edge_client.agent.first_contact import FirstContact
from moonfed.edge_client.agent.transfers import BlobTransfers
from moonfed.edge_client.worker import heartbeat
from moonfed.errors import MoonfedError
from moonfed.sandbox import child_process
from moonfed.transport import client as transport
from moonfed.transport import diagnosis as connection_diagnosis

RECONNECTION = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 100}

transport.Backoff.__init__.__defaults__ = (0.02, 0.2, 0)
transport.CLIENT_OPTIONS = tuple((dict(transport.CLIENT_OPTIONS) | RECONNECTION).items())  # type: ignore[assignment]
connection_diagnosis.RECHECK_SECONDS = 0.1
child_process.TICK_SECONDS = stream_timeout.TICK_SECONDS = heartbeat.HEARTBEAT_SECONDS = 0.05
reports.REPORT_SECONDS = 0.1
connection.CLOSE_SECONDS = 0.3

_wait, _may_retry = BlobTransfers._wait, FirstContact.may_retry


def wait(self: BlobTransfers, seconds: float) -> None:
    """Wait for a tenth of the time."""
    _wait(self, seconds / 10)


def may_retry(self: FirstContact, reason: MoonfedError) -> bool:
    """Log the number of answers."""
    answer = _may_retry(self, reason)
    logging.info("%d answers of another server", self._attempts)
    return answer


BlobTransfers._wait = wait  # type: ignore[method-assign]
FirstContact.may_retry = may_retry  # type: ignore[method-assign]
