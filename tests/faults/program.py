"""The coordinator's real program, with faults put into its store: a process that tests start instead of the program.

The environment names the faults (`environment_of`); nothing of this is in the program itself.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import sqlalchemy as sql

from moonfed.errors import Unavailable

VARIABLE, CLOCK = "MOONFED_TEST_FAULT", "MOONFED_TEST_CLOCK"
DAY = 86400.0
YEARS = 10 * 365 * DAY
Clock = Literal["jumping", "racing", "falling"]
LEASE_SECONDS = 1.0  # so that no kill costs more than that


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault before or after a call of `at`, such as `moonfed.coordinator.storage.store:Store.commit_round`.

    `kill` ends the process with SIGKILL, `full` raises what a full disk raises, `database away` and `objects away` what
    a server raises that cannot be reached, in so many calls after `skip` others.
    """

    at: str
    when: Literal["before", "after"] = "before"
    do: Literal["kill", "full", "database away", "objects away"] = "kill"
    skip: int = 0
    times: int = 1

    def install(self) -> None:
        """Put the fault around the method; AttributeError if there is none of that name."""
        module, _, path = self.at.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, name, self._around(getattr(owner, name)))

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        calls, lock = iter(range(1 << 30)), threading.Lock()

        def due() -> bool:
            with lock:
                return self.skip <= next(calls) < self.skip + self.times

        def called(*args: Any, **kwargs: Any) -> Any:
            striking = due()
            if striking and self.when == "before":
                self._strike()
            result = method(*args, **kwargs)
            if striking and self.when == "after":
                self._strike()
            return result

        return called

    @property
    def message(self) -> str:
        """Message of the process when the fault occurs."""
        return f"fault {self.when} {self.at}"

    def _strike(self) -> None:
        print(self.message, file=sys.stderr, flush=True)
        if self.do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        if self.do == "database away":
            raise sql.exc.OperationalError("a statement", None, ConnectionError("the server closed the connection"))
        if self.do == "objects away":
            raise Unavailable("the object store cannot be used: it is away")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def environment_of(faults: Iterable[Fault]) -> dict[str, str]:
    """Return the environment that passes the faults to the program."""
    return {VARIABLE: json.dumps([asdict(fault) for fault in faults])}


def disturb_the_clock(how: Clock) -> None:
    """Make this process's wall clock show another year, or the next day, from now on."""
    real, chance, looks = time.time, random.Random(1), itertools.count(1)
    time.time = {
        "jumping": lambda: real() + chance.choice([-YEARS, 0.0, YEARS]),
        "racing": lambda: real() + DAY * next(looks),
        "falling": lambda: real() - DAY * next(looks),
    }[how]


def main() -> None:
    from moonfed.coordinator.cli.program import main as run
    from moonfed.coordinator.replicas import monitor
    from moonfed.coordinator.runs import persistence

    persistence.RETRY_SECONDS = 0.1
    monitor.LEASE_SECONDS = LEASE_SECONDS
    for told in json.loads(os.environ.get(VARIABLE, "[]")):
        Fault(**told).install()
    if CLOCK in os.environ:
        disturb_the_clock(cast("Clock", os.environ[CLOCK]))
    run()


if __name__ == "__main__":
    main()
