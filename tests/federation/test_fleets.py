"""Real programs: several runs at once on one fleet, stragglers, and asynchronous rounds with a slow device."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.tensors import Vector, open_model
from moonfed.bundle.files import read_bundle

from .conftest import Federation

pytestmark = pytest.mark.slow


def test_two_runs_share_a_fleet_and_neither_loses_a_device_that_works_for_the_other(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    """A round of one run takes longer than the other run's heartbeat timeout; the latter must not lose its device."""
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    federation.start_device("cam-1", "--max-seconds", "9")
    federation.until_online(1)
    options = ("--minimum-devices", "2", "--quorum", "all", "--heartbeat-timeout", "5")
    federation.start_run(make_bundle("fedavg", epochs=1), "short", "--rounds", "2", *options)
    federation.until("short", lambda seen: seen.eligible == 1)
    federation.start_run(make_bundle("fedavg", epochs=15000), "long", "--rounds", "1", "--quorum", "all")
    federation.until_log("cam-1", ": epoch ")  # torch is there by then, whose import is no progress
    federation.start_device("cam-2")
    federation.until("short", lambda seen: seen.HasField("open_round"))
    assert federation.show("long").HasField("open_round"), "else this shows nothing"
    for name, devices in {"long": ["cam-1"], "short": ["cam-1", "cam-2"]}.items():
        federation.until_finished(name)
        assert all(list(entry.counted) == devices for entry in federation.rounds(name))
    assert federation.rounds("long")[0].seconds > 7, "else this shows nothing"
    assert "is lost" not in federation.log("coordinator")


def test_the_straggler_of_an_over_selected_round_is_dismissed_and_participates_later(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    for name in ("cam-1", "cam-2"):
        federation.start_device(name, "--label", "site=berlin")
    federation.start_device("cam-3", "--label", "site=berlin", "--max-bandwidth", "16KB")
    federation.until_online(3)
    federation.start_run(
        *(make_bundle("fedavg", epochs=1), "r", "--rounds", "3", "--minimum-devices", "3", "--cohort", "2"),
        *("--over-selection", "50%", "--quorum", "all", "--label", "site=berlin"),
    )
    federation.until_finished("r")
    rounds = federation.rounds("r")
    assert all(len(entry.counted) == 2 and len(entry.missing) == 1 for entry in rounds)
    assert list(rounds[0].missing) == ["cam-3"]
    assert "is lost" not in federation.log("coordinator")


def test_a_slow_devices_update_counts_by_its_staleness_while_a_fast_one_makes_models(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    """Every update makes a model; the slow device's is w + (y - w_base)/√(1 + τ), computed from its files."""
    moon = make_bundle("moon", mu=1, epochs=1)
    specs = read_bundle(moon).manifest.tensors
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    federation.start_device_for(3, "cam-1")
    federation.start_device_for(0, "cam-2")
    federation.until_online(2)
    options = ("--rounds", "9", "--minimum-devices", "2", "--asynchronous", "1", "--max-staleness", "60")
    federation.start_run(moon, "r", *options)
    federation.until("r", lambda run: run.round == 3)
    federation.allow(1, "cam-2")
    federation.until("r", lambda run: run.round == 4)
    counted = [list(entry.counted) for entry in federation.rounds("r")]
    assert counted == [["cam-1"], ["cam-1"], ["cam-1"], ["cam-2"]]
    number, staleness = 4, 3
    with closing(sqlite3.connect(federation.state / "coordinator.db")) as connection:
        query = "SELECT bases FROM rounds WHERE run = 'r' AND round = ?"
        bases = json.loads(connection.execute(query, (number,)).fetchone()[0])
    assert bases == {"cam-2": 1}
    y: Vector = np.array(open_model(federation.directory / "cam-2" / "runs" / "r" / "1-1" / "model.safetensors", specs))
    before, after, base = (federation.global_model("r", which, moon) for which in (number - 1, number, 0))
    assert all(spec.kind == "parameter" for spec in specs), "statistics go by another formula"
    np.testing.assert_allclose(after, before + (y - base) / np.sqrt(1 + staleness), rtol=1e-5, atol=1e-7)


def test_asynchronous_updates_are_encoded_and_devices_keep_the_rounding_error(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    for name in ("cam-1", "cam-2"):
        federation.start_device(name)
    federation.until_online(2)
    options = ("--rounds", "8", "--minimum-devices", "2", "--asynchronous", "1", "--uplink-encoding", "int8+zstd")
    federation.start_run(make_bundle("fedavg", epochs=1), "r", *options)
    federation.until_finished("r")
    rounds = federation.rounds("r")
    assert {name for entry in rounds for name in entry.counted} == {"cam-1", "cam-2"}
    for name in ("cam-1", "cam-2"):
        assert "lost; starting without it" not in federation.log(name)
    assert "ERROR" not in federation.log("coordinator")
