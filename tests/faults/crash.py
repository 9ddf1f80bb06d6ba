"""A crash between any two durable steps: from then on the disk no longer changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from moonfed.coordinator.storage.db.transactions import Transactions

STEPS = ("replace", "link", "unlink", "rmdir", "mkdir")  # of the module os


class Crash:
    """Counts the durable steps of a coordinator in this process, and fails all of them after the crash.

    Durable state then stays as it is, and nothing is acknowledged that is not durable, as if the process were gone.
    """

    def __init__(self) -> None:
        self.has_struck = False
        self._steps_left: int | None = None

    @property
    def is_armed(self) -> bool:
        """Return True if the crash may happen now."""
        return self._steps_left is not None

    def after(self, steps: int) -> None:
        """Crash after that many more steps."""
        self._steps_left = steps

    def strike(self) -> None:
        """Crash now."""
        self.has_struck = True

    def over(self) -> None:
        """Start the next process."""
        self.has_struck, self._steps_left = False, None

    def step(self) -> None:
        """Note that something is about to become durable."""
        if self._steps_left is not None:
            self._steps_left -= 1
            self.has_struck |= self._steps_left < 0
        if self.has_struck:
            raise OSError("the coordinator has crashed")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Observe every transaction and every change of a directory in this process."""
        write = Transactions.write

        @contextmanager
        def transaction(transactions: Transactions) -> Iterator[Any]:
            self.step()
            with write(transactions) as connection:
                yield connection
            self.step()  # it is durable, and nobody hears of it

        def counted(change: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*args: Any, **kwargs: Any) -> Any:
                self.step()
                return change(*args, **kwargs)

            return changed

        changes: Any = {name: counted(getattr(os, name)) for name in STEPS}
        with mock.patch.object(Transactions, "write", transaction), mock.patch.multiple(os, **changes):
            yield
