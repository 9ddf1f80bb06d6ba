"""An upgrade in the middle of a run, of a device and then of the coordinator; and a downgrade."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from moonfed.errors import Unavailable
from tests.compatibility.installed_release import Release
from tests.compatibility.programs import Programs, ended, programs_of, stop, upgrading
from tests.federation.conftest import Federation
from tests.support.later_migrations import CONTRACTED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DEVICES = ("cam-1", "cam-2")
ROUNDS = ("--rounds", "4", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")
WHOLE = [(number, 1, [*DEVICES], 0) for number in range(1, 5)]  # round, attempt, counted, devices that lost their part
VERSION_MISMATCH = 6  # exit code
LATER = 10_000  # version of a schema


def rounds(federation: Federation) -> list[tuple[int, int, list[str], int]]:
    return [(one.round, one.attempt, sorted(one.counted), one.personal_lost) for one in federation.rounds("r")]


def contents(directory: Path) -> dict[str, str]:
    """Return the digests of all files but the lock, which has the last process's number."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_run_survives_upgrades_of_a_device_and_of_the_coordinator(federation: Federation, last: Release) -> None:
    theirs, ours = Programs(last.programs), Programs()
    with programs_of(federation, theirs):
        federation.serve()
        federation.enrol(*DEVICES)
        federation.start_device_for(2, "cam-1")
        federation.start_device("cam-2")
        federation.until_online(2)
        federation.start_run(theirs.bundle("--personal", "head"), "r", *ROUNDS)
    federation.until("r", lambda seen: seen.open_round.round == 3 and list(seen.open_round.reported) == ["cam-2"])
    (certificate,) = (federation.directory / "cam-2").rglob("certificate.pem")
    identity = certificate.read_bytes()
    assert stop(federation, "cam-2") == 0  # its update has a receipt, and it cannot deliver it again
    assert stop(federation, "coordinator") == 0
    federation.serve("coordinator", *upgrading())
    federation.allow(100, "cam-1")
    federation.until("r", lambda seen: seen.round == 3)
    federation.start_device("cam-2")
    model = federation.until_finished("r").model.sha256
    assert rounds(federation) == WHOLE
    assert certificate.read_bytes() == identity
    assert federation.fleet.programs["cam-1"].poll() is None
    assert stop(federation, "coordinator") == 0
    is_downgraded_or_refused(federation, theirs, model)
    assert ours.json("moonfed-coordinator", "run", "show", "r", *federation.operator)["status"] == "finished"


def is_downgraded_or_refused(federation: Federation, theirs: Programs, model: str) -> None:
    """The last release serves this one's state as it is, or refuses it without a change; this one goes on."""
    before = contents(federation.state)
    try:
        with programs_of(federation, theirs):
            federation.serve()
    except Unavailable:
        is_refused(federation, before)
    else:
        assert rounds(federation) == WHOLE
        assert federation.show("r").model.sha256 == model
        assert stop(federation, "coordinator") == 0
    federation.serve()
    assert rounds(federation) == WHOLE


def is_refused(federation: Federation, before: dict[str, str]) -> None:
    """The program that was to serve ended, named both versions, and changed nothing."""
    assert ended(federation.fleet.programs.pop("coordinator")) == VERSION_MISMATCH
    assert contents(federation.state) == before


def test_a_later_release_migrates_the_state_which_this_one_then_needs_restored(
    federation: Federation, later: Programs
) -> None:
    database = federation.state / "coordinator.db"
    federation.serve()
    federation.enrol("cam-1")
    assert stop(federation, "coordinator") == 0
    with programs_of(federation, later):
        federation.serve()
    assert f"must be migrated to schema {CONTRACTED}" in federation.log("coordinator")
    assert stop(federation, "coordinator") == 0
    before = contents(federation.state)
    with pytest.raises(Unavailable):
        federation.serve()
    is_refused(federation, before)
    backup = federation.state / f"coordinator.db.before-schema-{CONTRACTED}"
    for name in ("coordinator.db-wal", "coordinator.db-shm"):
        (federation.state / name).unlink(missing_ok=True)
    shutil.copy(backup, database)
    federation.serve()
    devices = Programs().json("moonfed-coordinator", "device", "list", *federation.operator)
    assert [device["device"] for device in devices] == ["cam-1"]


@pytest.mark.parametrize("release", ["last", "this"])
def test_a_state_that_a_release_cannot_read_is_refused(release: str, federation: Federation, last: Release) -> None:
    with programs_of(federation, Programs(last.programs) if release == "last" else Programs()):
        federation.serve()
        assert stop(federation, "coordinator") == 0
        with closing(sqlite3.connect(federation.state / "coordinator.db")) as connection, connection:
            connection.execute("UPDATE schema SET readable_from = ?", (LATER,))
        before = contents(federation.state)
        with pytest.raises(Unavailable):
            federation.serve()
    said = federation.fleet.last_log_line("coordinator")
    assert str(LATER) in said
    assert "this is moonfed" in said
    is_refused(federation, before)
