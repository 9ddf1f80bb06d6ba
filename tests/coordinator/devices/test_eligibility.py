"""Eligibility of devices for runs with encodings, and assignments of devices that support none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moonfed.coordinator.cli.format import run_lines
from moonfed.errors import InvalidInput
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask

Until = Callable[[Callable[[], bool]], None]


def test_a_device_without_a_runs_encodings_is_not_selected_and_the_run_shows_it(fleet: Fleet, until: Until) -> None:
    fleet.start("run", uplink_encoding="int8+zstd", downlink_encoding="bfloat16")
    one = fleet.device("cam-1").connect(encodings=["float32", "bfloat16", "int8"])
    until(lambda: "not eligible" in fleet.operator.run("run").waiting)
    assert fleet.operator.run("run").waiting == (
        "waiting for 1 more device: 0 online, 1 needed; not eligible: cam-1 (without the encoding int8+zstd)"
    )
    two = fleet.device("cam-2").connect(encodings=["bfloat16", "int8+zstd"])
    work = two.assignment()
    assert (work.downlink_encoding, work.uplink_encoding) == ("bfloat16", "int8+zstd")
    run = fleet.operator.run("run")
    assert run.open_round.cohort == ["cam-2"]
    assert "encodings: int8+zstd up, bfloat16 down" in run_lines(run, None, [])
    one.leave()
    two.leave()


def test_a_device_without_encodings_gets_float32(fleet: Fleet, until: Until) -> None:
    fleet.start("encoded", uplink_encoding="int8")
    device = fleet.device("cam-1")
    session = device.connect()
    until(lambda: "cam-1 (without the encoding int8)" in fleet.operator.run("encoded").waiting)
    started = fleet.start("plain")
    assert not any(line.startswith("encodings") for line in run_lines(started, None, []))
    work = session.assignment()
    assert work.run == "plain"
    assert work.blobs["model"] == started.initial_model
    assert work.downlink_encoding in ("", "float32")
    assert work.uplink_encoding in ("", "float32")


def test_a_device_that_declines_a_run_for_good_is_not_assigned_again(fleet: Fleet, until: Until) -> None:
    """It is not assigned until it reconnects, perhaps with another trust file; the run shows why it waits."""
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect()
    work = session.assignment()
    request = fleet_pb2.DeclineRequest(device="cam-1", run="run", round=1, attempt=1, permanent=True, reason="no trust")
    ask(device.fleet.Decline, request)
    told = "waiting for 1 more device: 0 online, 1 needed; not eligible: cam-1 (it declines the run: no trust)"
    until(lambda: fleet.operator.run("run").waiting == told)
    until(lambda: [entry.reason for entry in fleet.operator.rounds("run")] != [])
    other = fleet.start("other")
    assert session.assignment().run == other.run  # and no second attempt of the first
    assert fleet.operator.run("run").waiting == told
    again = device.connect()
    assert {again.assignment().run, again.assignment().run} == {"run", "other"}
    assert work.signature == other.signature


def test_an_encoding_that_nobody_knows_is_rejected(fleet: Fleet) -> None:
    with pytest.raises(InvalidInput, match=r"uplink_encoding is 'int4'; it must be one of float32, float32\+zstd, bf"):
        fleet.start("run", uplink_encoding="int4")
