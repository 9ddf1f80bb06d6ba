"""Upgrades of two replicas to the next release, one by one, under a running round, while devices train."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sql

from moonfed.coordinator.storage.db.migration import RELEASED
from moonfed.transport.identity import COORDINATOR_FILE
from moonfed.v1 import control_pb2
from tests.compatibility.installed_release import Release
from tests.compatibility.programs import Programs, programs_of, stop, upgrading
from tests.coordinator.conftest import new_bucket
from tests.federation.conftest import PATIENCE, Federation
from tests.replicas.balancer import balancer
from tests.support.later_migrations import CONTRACTED, EXPANDED
from tests.support.ports import free_ports
from tests.support.postgresql import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DEVICES = ("cam-1", "cam-2", "cam-3")
FAST = ["cam-2", "cam-3"]
REPLICAS = ("first", "second")
ROUNDS = 6


@dataclass
class Replicas:
    """Replicas as programs on one database and one object store; `storage`: the options that name them."""

    federation: Federation
    storage: tuple[str, ...]
    ports: dict[str, tuple[int, int]]

    def serve(self, name: str, programs: Programs, *options: str) -> None:
        fleet, enrolment = map(str, self.ports[name])
        state = ("--state", str(self.federation.directory / name), "--json")
        program = str(programs.directory / "moonfed-coordinator")
        ports = ("--fleet-port", fleet, "--enrolment-port", enrolment)
        self.federation.fleet.start(name, program, "serve", *state, *ports, *self.storage, *options)
        self.federation.fleet.first_line(name)

    def revision(self) -> int:
        """Return the database's."""
        engine = sql.create_engine(self.storage[1].replace("postgresql:", "postgresql+psycopg:"))
        try:
            with engine.connect() as connection:
                return int(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
        finally:
            engine.dispose()

    def until(self, condition: Callable[[control_pb2.Run], bool]) -> None:
        """Wait for the run to reach a state, at whichever replica is there."""
        until(lambda: condition(self.federation.show("r")))


def accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)):
        return True


def until(condition: Callable[[], bool]) -> None:
    """Wait until the replicas answer that a condition holds."""
    end = time.monotonic() + PATIENCE
    while True:
        with suppress(grpc.RpcError, OSError):
            if condition():
                return
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)


@pytest.fixture(params=["last", "later"])
def releases(request: pytest.FixtureRequest) -> tuple[Programs, Programs]:
    """The older release, and the one that the replicas are upgraded to; one of the two is this tree."""
    if request.param == "last":
        last: Release = request.getfixturevalue("last")
        return Programs(last.programs), Programs()
    return Programs(), request.getfixturevalue("later")


@pytest.fixture
def replicas(
    federation: Federation,
    releases: tuple[Programs, Programs],
    postgresql_server: Server,
    s3_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Replicas]:
    """Replicas of the older release, two of them, behind a balancer, which also the operator uses."""
    storage = ("--database", postgresql_server.new_database(), "--blobs", new_bucket(s3_server, monkeypatch.setenv))
    first, second, *others = free_ports(4)
    made = Replicas(federation, storage, {"first": (first, others[0]), "second": (second, others[1])})
    theirs, _ = releases
    federation.state = tmp_path / "first"
    made.serve("first", theirs)
    (tmp_path / "second").mkdir()
    shutil.copytree(tmp_path / "first" / "authority", tmp_path / "second" / "authority")
    made.serve("second", theirs)
    with programs_of(federation, theirs):
        federation.enrol(*DEVICES)
    with balancer([first, second], tmp_path) as port:
        until(lambda: accepts(port))
        operator = federation.state / "operator" / COORDINATOR_FILE
        operator.write_text(json.dumps(json.loads(operator.read_text()) | {"address": f"127.0.0.1:{port}"}))
        for name in DEVICES:
            with programs_of(federation, theirs):
                address = ("--coordinator", f"127.0.0.1:{port}")
                if name in FAST:
                    federation.start_device(name, *address)
                else:
                    federation.start_device_for(2, name, *address)
        yield made


def test_replicas_are_upgraded_one_by_one_under_a_running_round(
    replicas: Replicas, releases: tuple[Programs, Programs]
) -> None:
    """The later release has two migrations; the second waits for the second replica."""
    federation, (theirs, ours) = replicas.federation, releases
    revisions = []
    federation.until_online(len(DEVICES))
    with programs_of(federation, theirs):
        settings = ("--minimum-devices", "3", "--cohort", "all", "--quorum", "100%")
        federation.start_run(theirs.bundle(), "r", "--rounds", str(ROUNDS), *settings)
    for name, number in zip(REPLICAS, (3, 5), strict=True):
        replicas.until(lambda seen: (seen.open_round.round, sorted(seen.open_round.reported)) == (number, FAST))
        assert stop(federation, name) == 0
        replicas.serve(name, ours, *upgrading())
        federation.allow(number + 1, "cam-1")
        revisions.append(replicas.revision())
    assert revisions == ([EXPANDED, CONTRACTED] if theirs == Programs() else [RELEASED.newest] * 2)
    replicas.until(lambda seen: seen.status == "finished")
    committed = [(one.round, one.attempt, sorted(one.counted)) for one in federation.rounds("r")]
    assert committed == [(number, 1, [*DEVICES]) for number in range(1, ROUNDS + 1)]
    assert [name for name in DEVICES if federation.fleet.programs[name].poll() is not None] == []
    for name in (*DEVICES, *REPLICAS):
        assert " ERROR " not in federation.log(name)
