"""A patch for programs in tests, see `forked_process`: plans are killed after the number of seconds in a file.

A test may rewrite the file between two plans.
"""

from __future__ import annotations

import os
from pathlib import Path

from moonfed.edge_client.agent.worker_process import GRACE_SECONDS
from moonfed.sandbox import child_process
from tests.support.forked_process import PATIENCE_FILE


class Deadline(child_process._Deadline):
    """A deadline with the file's seconds of silence, and of grace beyond a time limit."""

    def __init__(self, name: str, silence_seconds: float, seconds: float | None) -> None:
        patience = float(Path(os.environ[PATIENCE_FILE]).read_text())
        super().__init__(name, patience, None if seconds is None else seconds - GRACE_SECONDS + patience)


child_process._Deadline = Deadline  # type: ignore[misc]
