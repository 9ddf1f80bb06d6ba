"""Asynchronous runs over real TLS: slow and fast devices, rejections, restarts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.errors import AlreadyExists, InvalidInput, TooLate, WrongState
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.mean import MeanRule
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support import coordinator
from tests.support.coordinator import SCAFFOLD, SPECS, Device, DeviceSession, ask, model_bytes, model_values
from tests.support.coordinator_programs import Programs
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]
UNIFORM: dict[str, Any] = {"server_rule": MeanRule(weighting="uniform")}
PARAMETERS = sum(spec.size for spec in SPECS if spec.kind == "parameter")


def three(fleet: Fleet, **fields: Any) -> tuple[list[Device], list[DeviceSession], list[fleet_pb2.Assignment]]:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2", "cam-3")]
    fleet.start(minimum_devices=3, bundle=coordinator.make_bundle(**UNIFORM), **fields)
    sessions = [device.connect() for device in devices]
    return devices, sessions, [one.assignment() for one in sessions]


def parameters(fleet: Fleet, blob: object) -> float:
    """The value that all parameters of a model have."""
    values = model_values(fleet.operator.model(blob))[:PARAMETERS]  # type: ignore[arg-type]
    np.testing.assert_array_equal(values, values[0])
    return float(values[0])


def test_two_fast_devices_make_models_and_the_slow_ones_update_still_counts(fleet: Fleet) -> None:
    devices, sessions, work = three(fleet, rounds=3, asynchronous=2)
    assert {one.round for one in work} == {1}
    for number, value in ((0, 2.0), (1, 4.0)):
        devices[number].submit(work[number], model_bytes(value))
    second = [sessions[number].assignment() for number in (0, 1)]
    assert [one.round for one in second] == [2, 2]
    assert parameters(fleet, second[0].blobs["model"]) == 3.0
    devices[0].submit(second[0], model_bytes(5.0))  # made 5 of 3
    assert not devices[2].report(work[2], 0.5).stop
    receipt = devices[2].submit(work[2], model_bytes(8.0))[-1].receipt  # made 8 of 0, one model ago
    assert receipt.round == 1
    third = sessions[0].assignment()
    expected = 3.0 + (2.0 + 8.0 / 2**0.5) / 2
    assert parameters(fleet, third.blobs["model"]) == pytest.approx(expected, rel=1e-6)
    assert sessions[2].assignment() == third
    assert devices[2].submit(work[2], model_bytes(8.0))[-1].receipt == receipt, "the same update again"
    with pytest.raises(AlreadyExists):
        devices[2].submit(work[2], model_bytes(9.0))
    for number, one in ((0, third), (1, second[1])):
        devices[number].submit(one, model_bytes(1.0))
    ended = list(fleet.operator.watch("run"))[-1].run
    assert ended.status == "finished"
    rounds = fleet.operator.rounds("run")
    assert [list(entry.counted) for entry in rounds] == [["cam-1", "cam-2"], ["cam-1", "cam-3"], ["cam-1", "cam-2"]]
    assert not any(entry.missing for entry in rounds)
    expected += (1.0 - expected + (1.0 - 3.0) / 2**0.5) / 2
    assert parameters(fleet, ended.model) == pytest.approx(expected, rel=1e-6)
    assert not list((fleet.state / "spool").rglob("model/*")), "what was counted is deleted"


def test_a_too_stale_update_is_rejected_and_its_device_starts_again(fleet: Fleet) -> None:
    devices, sessions, work = three(fleet, rounds=9, asynchronous=2, max_staleness=0)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(2.0))
    newest = sessions[2].assignment()
    assert newest.round == 2
    with pytest.raises(TooLate, match="at most 0 are"):
        devices[2].submit(work[2], model_bytes(8.0))
    assert devices[2].report(work[2], 0.5).stop
    devices[2].submit(newest, model_bytes(8.0))
    declined = fleet_pb2.DeclineRequest(device="cam-3", run="run", round=2, attempt=1, reason="no")
    with pytest.raises(WrongState, match="'cam-3' has no pending"):
        ask(devices[2].fleet.Decline, declined)


def test_a_reconnecting_device_resumes_its_assignment(fleet: Fleet, until: Until) -> None:
    devices, sessions, work = three(fleet, rounds=3, asynchronous=2)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(2.0))
    sessions[0].assignment()
    sessions[2].leave()
    until(lambda: "cam-3 (offline" in fleet.operator.run("run").waiting)
    waiting = fleet.operator.run("run").waiting
    assert waiting == "round 2 has 0 of 2 updates; training: cam-1, cam-2, cam-3 (offline)"
    assert devices[2].connect().assignment() == work[2]


def test_a_device_that_gets_the_name_of_a_removed_one_does_not_take_its_place(fleet: Fleet, until: Until) -> None:
    devices, sessions, work = three(fleet, rounds=3, asynchronous=2)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(2.0))
    assert sessions[0].assignment().round == 2
    ask(fleet.operator.control.RemoveDevice, control_pb2.RemoveDeviceRequest(device="cam-3"))
    identity = coordinator.enrol(fleet.tmp / "successor", fleet.operator.token(), "cam-3")
    new = Device("cam-3", fleet.stack.enter_context(transport.open_channel(identity.address, identity)))
    with pytest.raises(WrongState, match="'cam-3' has no pending"):
        new.submit(work[2], model_bytes(1000.0))
    assert new.connect().assignment().round == 2


def test_a_stuck_device_is_lost_though_its_work_grows_too_old_again_and_again(fleet: Fleet, until: Until) -> None:
    """Its silence counts from its first assignment; once lost, it gets no other until it sends a heartbeat."""
    devices, sessions, work = three(fleet, rounds=100_000, asynchronous=2, max_staleness=1, heartbeat_timeout=2.0)
    current = work[:2]

    def next_round() -> None:
        for number in (0, 1):
            devices[number].submit(current[number], model_bytes(1.0))
        current[:] = [sessions[number].assignment() for number in (0, 1)]

    def lost() -> bool:
        next_round()
        return list(fleet.operator.run("run").open_round.lost) == ["cam-3"]

    until(lost)
    since = current[0].round
    assert since > 3, "else its work did not grow too old"
    for _ in range(3):
        assert lost(), "it stays lost"
    assert devices[2].report(work[2], 0.5).stop, "its first work is too old"
    newest = sessions[2].assignment()
    while newest.round <= since:  # what it was given before it was lost
        newest = sessions[2].assignment()
    devices[2].submit(newest, model_bytes(1.0))


@pytest.mark.parametrize(
    ("bundle", "fields", "named"),
    [
        (SCAFFOLD, {}, ("method", "scaffold")),
        ({"server_rule": FedNova()}, {}, ("server_rule", "fednova")),
        ({}, {"over_selection": 0.5}, ("over_selection", 0.5)),
    ],
)
def test_settings_without_meaning_for_asynchronous_runs_are_rejected_at_the_start(
    fleet: Fleet, bundle: dict[str, Any], fields: dict[str, Any], named: tuple[str, object]
) -> None:
    with refused(InvalidInput, *named):
        fleet.start(bundle=coordinator.make_bundle(**bundle), **{"asynchronous": 2, **fields})


def test_a_killed_coordinator_resumes_with_its_buffer_and_assignments(programs: Programs, tmp_path: Path) -> None:
    """cam-3 works on round 1, and cam-1's update of round 2 is in the buffer: both count after kill -9."""
    programs.serve()
    bundle = coordinator.bundle_directory(tmp_path / "bundle", **UNIFORM)
    names = ("cam-1", "cam-2", "cam-3")
    devices = [programs.device(name) for name in names]
    programs.command(
        *("run", "start", str(bundle), "--name", "r", "--rounds", "2", "--minimum-devices", "3"),
        *("--asynchronous", "2", "--max-staleness", "5", "--trusting"),
    )
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    for number, value in ((0, 2.0), (1, 4.0)):
        devices[number].submit(work[number], model_bytes(value))
    second = sessions[0].assignment()
    receipt = devices[0].submit(second, model_bytes(5.0))[-1].receipt
    programs.signal(signal.SIGKILL)

    programs.serve()
    open_round = programs.operator().run("r").open_round
    assert (open_round.round, list(open_round.reported), list(open_round.cohort)) == (2, ["cam-1"], list(names))
    devices = [programs.device(name) for name in names]
    assert devices[2].connect().assignment() == work[2]
    assert devices[0].submit(second, model_bytes(5.0))[-1].receipt == receipt
    devices[2].submit(work[2], model_bytes(8.0))
    ended = list(programs.operator().watch("r"))[-1].run
    assert [list(entry.counted) for entry in programs.operator().rounds("r")] == [
        ["cam-1", "cam-2"],
        ["cam-1", "cam-3"],
    ]
    values = model_values(programs.operator().model(ended.model))[:PARAMETERS]
    np.testing.assert_allclose(values, 3.0 + (2.0 + 8.0 / 2**0.5) / 2, rtol=1e-6)
    output = programs.command("run", "show", "r")
    assert "2 of 2" in output
