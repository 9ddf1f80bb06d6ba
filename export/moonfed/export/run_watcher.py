"""Watches a run: has a look whenever there may be a new global model, until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from moonfed.errors import Unavailable
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.transport import Backoff
from moonfed.v1 import control_pb2

WAIT_LIMIT = 30.0  # seconds between attempts to find the coordinator again
_ASKS_FOR_A_LOOK = (
    control_pb2.EVENT_KIND_SNAPSHOT,
    control_pb2.EVENT_KIND_ROUND_COMMITTED,
    control_pb2.EVENT_KIND_ENDED,
)


def watch_run(
    runs: CoordinatorClient, run: str, *, look: Callable[[], bool], away: Callable[[Unavailable], None]
) -> None:
    """Calls `look` until it says that the run has ended; `away` is told of a coordinator that is waited for."""
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            if not _look_at_events(runs, run, look, backoff):
                return
        except Unavailable as problem:
            away(problem)
        time.sleep(backoff.next())


def _look_at_events(runs: CoordinatorClient, run: str, look: Callable[[], bool], backoff: Backoff) -> bool:
    for event in runs.watch(run):
        backoff.reset()
        if event.kind in _ASKS_FOR_A_LOOK and not look():
            return False
    return look()
