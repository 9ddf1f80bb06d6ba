"""Watching a run: a callback for every new global model until the run has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from moonfed.client import Ended, Interrupted, RoundCommitted, Snapshot
from moonfed.errors import Unavailable
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.transport.client import Backoff

WAIT_LIMIT = 30.0  # maximum seconds between attempts to reconnect


def watch_run(
    runs: CoordinatorClient, run: str, *, on_model: Callable[[], bool], on_unavailable: Callable[[Unavailable], None]
) -> None:
    """Call `on_model` for every new global model until it returns False; wait for an unavailable coordinator."""
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            for event in runs.watch(run, progress=False):
                if isinstance(event, Interrupted):
                    on_unavailable(Unavailable(event.reason))
                    continue
                backoff.reset()
                if isinstance(event, Snapshot | RoundCommitted | Ended) and not on_model():
                    return
            if not on_model():
                return
        except Unavailable as error:
            on_unavailable(error)
        time.sleep(backoff.next())
