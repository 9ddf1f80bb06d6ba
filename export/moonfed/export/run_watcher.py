"""Watching a run: a callback for every new global model until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from moonfed.errors import Unavailable
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.transport.client import Backoff
from moonfed.v1 import control_pb2

WAIT_LIMIT = 30.0  # maximum seconds between attempts to reconnect
_MODEL_EVENTS = (
    control_pb2.EVENT_KIND_SNAPSHOT,
    control_pb2.EVENT_KIND_ROUND_COMMITTED,
    control_pb2.EVENT_KIND_ENDED,
)


def watch_run(
    runs: CoordinatorClient, run: str, *, on_model: Callable[[], bool], on_unavailable: Callable[[Unavailable], None]
) -> None:
    """Call `on_model` for every new global model until it returns False; wait for an unavailable coordinator."""
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            if not _follow_events(runs, run, on_model, backoff):
                return
        except Unavailable as error:
            on_unavailable(error)
        time.sleep(backoff.next())


def _follow_events(runs: CoordinatorClient, run: str, on_model: Callable[[], bool], backoff: Backoff) -> bool:
    for event in runs.watch(run):
        backoff.reset()
        if event.kind in _MODEL_EVENTS and not on_model():
            return False
    return on_model()
