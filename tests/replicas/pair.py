"""Two replicas as processes on one database and one object store, and devices that reach them through a balancer."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle.files import Bundle
from moonfed.coordinator.storage.store import Store
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.fleet.assignment import Assignment
from tests.faults.fleet import SAMPLES, Coordinators, LightDevice, enrol_all, until
from tests.replicas.balancer import balancer

PROGRAM = (sys.executable, "-m", "tests.replicas.program")
SLOW, SLOW_SECONDS = "cam-3", 0.2  # so that there is such a thing as the middle of a round


class OneOfMany(LightDevice):
    """A device, one of which is slow."""

    def _train(self, assignment: Assignment, before: bytes) -> StoredRound:
        if self.name == SLOW:
            time.sleep(SLOW_SECONDS)
        return super()._train(assignment, before)


@dataclass
class Pair:
    """`store`: the database as seen by a third party."""

    replicas: Sequence[Coordinators]
    store: Store
    devices: Sequence[LightDevice]

    def of(self, run: str) -> tuple[Coordinators, Coordinators]:
        """The holder of the run's lease, and the follower."""
        holder = self.store.run_summaries.load()[run].holder
        first, second = self.replicas
        assert first.process
        return (first, second) if f"-{first.process.pid}-" in holder else (second, first)

    def middle_of_round(self, run: str, round_: int) -> None:
        """Wait until that round or a later one has some but not all updates."""

        def there() -> bool:
            pulse = self.store.run_summaries.load()[run]
            return pulse.status == "open" and pulse.round >= round_ and 0 < pulse.accepted < len(SAMPLES)

        until(there)

    def finished(self, run: str) -> None:
        until(lambda: self.store.run(run).status == "finished")

    def rounds(self, run: str) -> list[tuple[int, list[str]]]:
        """The committed rounds with the devices that counted."""
        past = self.store.past_rounds(run, None, 1000)
        return [(found.id.round, sorted(found.counted)) for found in past if found.status == "committed"]


def pause(replica: Coordinators) -> None:
    assert replica.process
    os.kill(replica.process.pid, signal.SIGSTOP)


def go_on(replica: Coordinators) -> None:
    assert replica.process
    os.kill(replica.process.pid, signal.SIGCONT)


def start(replica: Coordinators, run: str, bundle: Bundle, rounds: int) -> None:
    replica.start_run(run, bundle, rounds, len(SAMPLES))


@contextmanager
def two_replicas(tmp: Path, database: str, blobs: str, devices: Sequence[str]) -> Iterator[list[Coordinators]]:
    """Serve one database and one object store with two processes, at which `devices` are enrolled.

    The second replica has a copy of the first one's authority.
    """
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    arguments = ["--database", database, "--blobs", blobs, "--metrics-port", "0"]
    with ExitStack() as stack:
        replicas = []
        for name in ("first", "second"):
            (tmp / name).mkdir()
            made = Coordinators(tmp / name, program=PROGRAM, arguments=arguments, environment=aws)
            replicas.append(made)
            stack.callback(made.kill)
        first, second = replicas
        first.serve()
        shutil.copytree(first.state / "authority", second.state / "authority")
        second.serve()
        enrol_all(first, list(devices))
        yield replicas


@contextmanager
def pair_of_replicas(tmp: Path, store: Store, database: str, blobs: str) -> Iterator[Pair]:
    """Two replicas, and devices that reach them through a balancer."""
    with ExitStack() as stack:
        replicas = stack.enter_context(two_replicas(tmp, database, blobs, list(SAMPLES)))
        first, second = replicas
        port = stack.enter_context(balancer([first.ports[0], second.ports[0]], tmp))
        address = f"127.0.0.1:{port}"
        devices = [OneOfMany(first.tmp / name, name, count, address) for name, count in SAMPLES.items()]
        for device in devices:
            stack.callback(device.stop)
            device.start()
        yield Pair(replicas, store, devices)
