"""The way of docs/state.md to back up and restore: taken while a run goes on, a backup goes on from where it was."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

from moonfed.v1 import control_pb2
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, until

ROUNDS = 8
BUNDLE = bundle_of(50)


def back_up(coordinators: Coordinators) -> None:
    """As docs/state.md says: the database first, then what it refers to."""
    backup = coordinators.tmp / "backup"
    backup.mkdir(mode=0o700)
    source, target = (sqlite3.connect(place / "coordinator.db") for place in (coordinators.state, backup))
    with closing(source), closing(target):
        source.backup(target)
    for name in ("blobs", "authority", "operator"):
        shutil.copytree(coordinators.state / name, backup / name)


def test_a_backup_taken_while_it_serves_goes_on_where_it_was_taken(coordinators: Coordinators) -> None:
    coordinators.serve()
    coordinators.start_run("undisturbed", BUNDLE, ROUNDS, len(SAMPLES))
    with devices_at(coordinators):
        undisturbed = coordinators.finished("undisturbed").model
        coordinators.start_run("r", BUNDLE, ROUNDS, len(SAMPLES))
        until(lambda: coordinators.run("r").round >= 2)
        back_up(coordinators)
        until(lambda: coordinators.run("r").round >= 4)
        coordinators.kill()
    shutil.rmtree(coordinators.state)
    (coordinators.tmp / "backup").rename(coordinators.state)
    coordinators.serve()
    assert 2 <= coordinators.run("r").round < ROUNDS
    with devices_at(coordinators):
        ended = coordinators.finished("r")
    assert ended.status == control_pb2.RUN_STATUS_FINISHED
    assert ended.model == undisturbed
