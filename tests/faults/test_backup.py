"""Backup and restore as in docs/state.md: a backup taken during a run resumes from where it was taken."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from moonfed.fleet.assignment import Assignment
from moonfed.v1 import control_pb2
from tests.faults.fleet import SAMPLES, Coordinators, Pace, bundle_of, devices_at, until
from tests.support.coordinator import ask

pytestmark = pytest.mark.slow

ROUNDS = 8
HELD = 3  # the first round that nobody trains for until it is let go
BUNDLE = bundle_of(50)


class Held(Pace):
    """Train at full speed up to a round, so that nothing is committed during a step of the backup."""

    def __init__(self) -> None:
        self.at = HELD

    def may_train(self, device: str, assignment: Assignment) -> bool:
        return assignment.id.round < self.at


def link_blobs(coordinators: Coordinators) -> None:
    """Execute the first and third step of docs/state.md."""
    source, backup = coordinators.state / "blobs", coordinators.tmp / "backup"
    backup.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["/bin/cp", "-al", source, f"{backup}/"], check=True)


def copy_database(coordinators: Coordinators) -> None:
    """Execute the second step: `sqlite3 coordinator.db ".backup …"` makes this call."""
    places = (coordinators.state, coordinators.tmp / "backup")
    source, target = (sqlite3.connect(place / "coordinator.db") for place in places)
    with closing(source), closing(target):
        source.backup(target)


def copy_keys(coordinators: Coordinators) -> None:
    for name in ("authority", "operator"):
        shutil.copytree(coordinators.state / name, coordinators.tmp / "backup" / name)


def lose_and_restore(coordinators: Coordinators) -> None:
    coordinators.kill()
    shutil.rmtree(coordinators.state)
    shutil.copytree(coordinators.tmp / "backup", coordinators.state)
    coordinators.serve()


def undisturbed_model(coordinators: Coordinators) -> str:
    """Digests of a run that is later deleted: none of its blobs may replace another run's."""
    coordinators.start_run("undisturbed", BUNDLE, ROUNDS, len(SAMPLES))
    with devices_at(coordinators):
        model = coordinators.finished("undisturbed").model.sha256
    calls = coordinators.operator()
    with calls.channel:
        ask(calls.control.DeleteRun, control_pb2.DeleteRunRequest(run="undisturbed"))
    return model


def expect_the_end(coordinators: Coordinators, model: str) -> None:
    with devices_at(coordinators):
        ended = coordinators.finished("r")
    assert ended.status == "finished"
    assert ended.model.sha256 == model


def test_a_backup_of_a_running_coordinator_resumes_where_it_was_taken(coordinators: Coordinators) -> None:
    coordinators.serve()
    undisturbed = undisturbed_model(coordinators)
    coordinators.start_run("r", BUNDLE, ROUNDS, len(SAMPLES))
    held = Held()
    with devices_at(coordinators, pace=held):
        until(lambda: coordinators.run("r").open_round.round == HELD)
        link_blobs(coordinators)
        copy_database(coordinators)
        link_blobs(coordinators)
        copy_keys(coordinators)
        held.at = HELD + 2
        until(lambda: coordinators.run("r").open_round.round == held.at)
    lose_and_restore(coordinators)
    assert coordinators.run("r").round == HELD - 1
    expect_the_end(coordinators, undisturbed)


def test_blobs_deleted_during_a_backup_are_in_it(coordinators: Coordinators) -> None:
    """A run that keeps one model drops the one that the copied database names once the next round commits."""
    coordinators.serve()
    undisturbed = undisturbed_model(coordinators)
    coordinators.start_run("r", BUNDLE, ROUNDS, len(SAMPLES), keep_last=1, keep_every=0)
    held = Held()
    with devices_at(coordinators, pace=held):
        until(lambda: coordinators.run("r").open_round.round == HELD)
        newest = coordinators.run("r").model.sha256
        link_blobs(coordinators)
        copy_database(coordinators)
        held.at = HELD + 2
        until(lambda: coordinators.run("r").open_round.round == held.at)
        until(lambda: not list(coordinators.state.glob(f"blobs/**/{newest}")))
        link_blobs(coordinators)
        copy_keys(coordinators)
    lose_and_restore(coordinators)
    assert (coordinators.run("r").round, coordinators.run("r").model.sha256) == (HELD - 1, newest)
    expect_the_end(coordinators, undisturbed)
