"""A patch of a program of a test, see `forked_process`: plans are killed after seconds instead of minutes."""

from __future__ import annotations

from moonfed.edge_client.agent.child_process import SILENCE_SECONDS
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.predict import Computing
from moonfed.edge_client.profile.measure import profile

SECONDS = 6.0

WorkerProcess.__init__.__defaults__ = (SILENCE_SECONDS, SECONDS)
profile.__defaults__ = (lambda _: None, SECONDS)
Computing.__init__.__kwdefaults__["silence_seconds"] = SECONDS  # type: ignore[index]
