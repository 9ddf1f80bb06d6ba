"""The Control service over real TLS."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from moonfed.errors import NotFound
from tests.coordinator.conftest import Fleet


def test_a_run_of_any_length_fits_into_a_message_and_its_rounds_are_streamed(fleet: Fleet) -> None:
    fleet.start()
    devices = [f"a-device-with-a-rather-long-name-{number:06}" for number in range(10_000)]
    store = fleet.state / "coordinator.db"
    rest = ("[]", "late", 0, 0, 0, "[]", "{}", "[]", "{}", "{}", "{}", "{}", 0, 0)
    rounds = [("run", 0, number, "abandoned", json.dumps(devices), *rest) for number in range(60)]
    marks = ", ".join("?" * len(rounds[0]))
    with closing(sqlite3.connect(store, timeout=20)) as connection:
        connection.executemany(f"INSERT INTO rounds VALUES ({marks})", rounds)  # noqa: S608
        connection.commit()
    assert fleet.operator.run("run").run == "run"
    assert next(fleet.operator.watch("run")).run.run == "run"
    found = fleet.operator.rounds("run")
    assert [entry.attempt for entry in found] == list(range(60))
    assert list(found[-1].missing) == devices
    with pytest.raises(NotFound, match="'other'"):
        fleet.operator.rounds("other")
