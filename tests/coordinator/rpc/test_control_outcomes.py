"""The history of a device and the outcomes of a run's devices, over real TLS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moonfed.errors import MoonfedError, NotFound, TooLate
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, model_bytes

MOST = 2**32 - 1


def history(fleet: Fleet, device: str, last: int = 0) -> list[control_pb2.DeviceResult]:
    request = control_pb2.ListDeviceHistoryRequest(device=device, last=last)
    call = fleet.operator.control.ListDeviceHistory
    found: list[control_pb2.DeviceResult] = ask(lambda asked, timeout: list(call(asked, timeout=timeout)), request)
    return found


def outcomes(fleet: Fleet, run: str, last: int = 0) -> list[control_pb2.RoundOutcomes]:
    request = control_pb2.ListRoundOutcomesRequest(run=run, last=last)
    call = fleet.operator.control.ListRoundOutcomes
    found: list[control_pb2.RoundOutcomes] = ask(lambda asked, timeout: list(call(asked, timeout=timeout)), request)
    return found


def test_an_update_that_comes_after_its_round_is_late(
    fleet: Fleet, until: Callable[[Callable[[], bool]], None]
) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    sessions = [device.connect() for device in devices]
    fleet.start("run", 2, minimum_devices=2, cohort=1, over_selection=1.0)
    work = [one.assignment() for one in sessions]
    devices[0].submit(work[0], model_bytes(1.0))
    again = sessions[0].assignment()  # of round 2, which did not wait for cam-2
    assert [dict(found.outcomes) for found in outcomes(fleet, "run")] == [{"cam-1": "counted", "cam-2": "missing"}]
    assert history(fleet, "cam-2")[0].reason.startswith("0% trained")
    with pytest.raises(TooLate):
        devices[1].submit(work[1], model_bytes(1.0))
    until(lambda: history(fleet, "cam-2")[0].outcome == "late")
    assert dict(fleet.operator.rounds("run")[0].outcomes) == {"counted": 1, "late": 1}
    devices[0].submit(again, model_bytes(1.0))
    list(fleet.operator.watch("run"))
    with pytest.raises(MoonfedError, match="has ended"):  # the run no longer knows the round
        devices[1].submit(sessions[1].assignment(), model_bytes(1.0))
    until(lambda: [found.outcome for found in history(fleet, "cam-2")] == ["late", "late"])

    first, second = outcomes(fleet, "run", MOST)
    assert (first.round, first.attempt, first.status) == (1, 1, "committed")
    assert first.time < second.time
    assert [found.round for found in outcomes(fleet, "run", 1)] == [2]
    newest, oldest = history(fleet, "cam-1", MOST)
    assert (newest.run, newest.round, newest.outcome, newest.time) == ("run", 2, "counted", newest.time)
    assert newest.seconds > 0
    assert history(fleet, "cam-1", 1) == [newest]
    assert oldest.round == 1


def test_unknown_names_are_errors(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="there is no device 'cam-1'"):
        history(fleet, "cam-1")
    with pytest.raises(NotFound, match="there is no run 'run'"):
        outcomes(fleet, "run")
    for call in (history, outcomes):
        with pytest.raises(NotFound):
            call(fleet, "x\x00\n" + "é" * 100_000)
