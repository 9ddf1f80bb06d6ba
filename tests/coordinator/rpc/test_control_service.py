"""The Control service over real TLS."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from moonfed.errors import NotFound
from tests.coordinator.conftest import Fleet


def record(fleet: Fleet, attempts: list[tuple[int, int]], devices: list[str]) -> None:
    """Insert abandoned rounds into the database."""
    rest = ("[]", "late", 0, 0, 0, "[]", "{}", "[]", "{}", "{}", "{}", "{}", 0, 0, 0)
    rounds = [("run", *attempt, "abandoned", json.dumps(devices), *rest) for attempt in attempts]
    marks = ", ".join("?" * len(rounds[0]))
    with closing(sqlite3.connect(fleet.state / "coordinator.db", timeout=20)) as connection:
        connection.executemany(f"INSERT INTO rounds VALUES ({marks})", rounds)  # noqa: S608
        connection.commit()


def test_a_run_of_any_length_fits_into_a_message_and_its_rounds_are_streamed(fleet: Fleet) -> None:
    fleet.start()
    devices = [f"a-device-with-a-rather-long-name-{number:06}" for number in range(10_000)]
    record(fleet, [(0, number) for number in range(60)], devices)
    assert fleet.operator.run("run").run == "run"
    assert next(fleet.operator.watch("run")).run.run == "run"
    found = fleet.operator.rounds("run")
    assert [entry.attempt for entry in found] == list(range(60))
    assert list(found[-1].missing) == devices
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.rounds("other")


def test_the_attempts_at_one_round_are_listed_alone(fleet: Fleet) -> None:
    fleet.start()
    attempts = {1: [1], 2: [1, 2, 3, 4, 5], 3: [1, 2], 4: []}
    record(fleet, [(number, attempt) for number, made in attempts.items() for attempt in made], ["cam-1"])
    for number, made in attempts.items():
        found = fleet.operator.rounds("run", number)
        assert [(entry.round, entry.attempt) for entry in found] == [(number, attempt) for attempt in made]
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.rounds("other", 1)
