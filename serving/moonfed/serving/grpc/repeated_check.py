"""A check that a thread repeats while there is something to check."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sized


class RepeatedCheck:
    """A check of `pending`, every so many seconds while it is not empty. `wake` must follow each addition."""

    def __init__(self, check: Callable[[], None], pending: Sized, *, seconds: float, thread_name: str) -> None:
        self._check = check
        self._pending = pending
        self._seconds = seconds
        self._some = threading.Event()
        threading.Thread(target=self._repeat, name=thread_name, daemon=True).start()

    def wake(self) -> None:
        """Resume checking. Thread-safe."""
        if not self._some.is_set():
            self._some.set()

    def _repeat(self) -> None:
        while True:
            self._some.wait()
            time.sleep(self._seconds)
            self._check()
            if not self._pending:
                self._some.clear()
                if self._pending:  # something was added in the meantime
                    self._some.set()
