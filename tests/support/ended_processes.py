"""Waiting for processes to end, also for orphans, which the system's first process may take seconds to reap."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress

import psutil

FIRST_PROCESS = 1


def still_running(processes: Collection[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait for processes to end; return those that have not after that many seconds."""
    end, running = time.monotonic() + seconds, list(processes)
    while running and time.monotonic() < end:
        _, alive = psutil.wait_procs(running, timeout=0.02)
        running = [process for process in alive if not _is_orphaned_zombie(process)]
    return running


def _is_orphaned_zombie(process: psutil.Process) -> bool:
    """Return whether a process has ended after its parent, which would otherwise have to reap it."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE and process.ppid() == FIRST_PROCESS)
    return True
