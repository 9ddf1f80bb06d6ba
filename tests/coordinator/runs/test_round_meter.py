"""The figures of an attempt, in a coordinator over TLS and by the meter alone."""

from __future__ import annotations

import pytest

from moonfed.coordinator.records import NOT_MEASURED, AttemptId, DeviceReport
from moonfed.coordinator.rounds.events import Abandon, Open, Reduce, Resumed
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, State
from moonfed.coordinator.runs.round_clock import RoundClock
from moonfed.coordinator.runs.round_meter import RoundMeter
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet
from tests.support.clock import Clock
from tests.support.coordinator import ask, model_bytes

STATE = State(open=OpenRound(round=1, attempt=1, cohort=("a", "b")), online=frozenset("ab"))
REDUCE = Reduce(round=1, attempt=1, devices=("a",))
ABANDON = Abandon(round=1, attempt=1, missing=("a", "b"), reason="because")


def report(device: str, outcome: str, round_: int = 1) -> DeviceReport:
    id_ = AttemptId(run="r", round=round_, attempt=1)
    return DeviceReport(id=id_, device=device, outcome=outcome, reason="busy")  # type: ignore[arg-type]


def meter(time: Clock, *, asynchronous: bool = False) -> RoundMeter:
    opened = RoundMeter(RoundClock(time), lambda device: 0.5, asynchronous=asynchronous)
    opened.on_step(Resumed(online={}), STATE, [Open(round=1, attempt=1, cohort=("a", "b"))])
    return opened


def test_the_device_without_an_update_has_a_reason() -> None:
    measured = meter(Clock()).reducing(STATE, REDUCE, 7)[1]
    assert [word.split()[0] for word in measured.undelivered["b"]] == ["missing", "50%"]
    assert measured.assigned_bytes == 7


def test_an_attempt_that_never_opened_here_has_no_figures() -> None:
    later = Abandon(round=2, attempt=1, missing=(), reason="because")
    assert meter(Clock()).abandoning(STATE, later, NOBODY, 7) == NOT_MEASURED


def test_an_abandoned_attempt_has_its_lost_devices() -> None:
    time = Clock()
    measuring = meter(time)
    time.now = 8.0
    measured = measuring.abandoning(STATE, ABANDON, frozenset("a"), 7)
    assert measured.undelivered["a"][0] == "lost"
    assert sum(measured.phases.values()) == measured.phases["waiting"] == 8.0


def test_an_asynchronous_round_records_the_failures_since_the_newest_model() -> None:
    measuring = meter(Clock(), asynchronous=True)
    measuring.report(report("b", "declined"))
    measured = measuring.reducing(STATE, REDUCE, 7)[1]
    assert measured.undelivered == {"b": ("declined", "busy")}
    measuring.report(report("c", "rejected"))  # while it is reduced
    measuring.committed(REDUCE, measured)
    assert measuring.reducing(STATE, REDUCE, 7)[1].undelivered == {"c": ("rejected", "busy")}


def test_operators_see_the_figures_of_a_round(fleet: Fleet) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2", "cam-3")]
    sessions = [one.connect() for one in devices]
    fleet.start("run", minimum_devices=3, quorum=1)
    work = [one.assignment() for one in sessions]
    content = model_bytes(1.0)
    devices[0].submit(work[0], content, personal_lost=True)
    for device in devices[1:]:
        request = fleet_pb2.DeclineRequest(device=device.name, run="run", round=1, attempt=1, reason="busy")
        ask(device.fleet.Decline, request)
    ended = list(fleet.operator.watch("run"))[-1].run
    (only,) = fleet.operator.rounds("run")
    assert dict(only.outcomes) == {"counted": 1, "declined": 2}
    assert set(only.phases) == set(PHASES)
    assert sum(only.phases.values()) == pytest.approx(only.seconds)
    assert only.received_bytes == len(content)
    assert only.personal_lost == 1
    assert only.sent_bytes == 3 * ended.initial_model.size
    first = next(found for found in fleet.operator.devices() if found.device == "cam-1")
    assert first.last_result.outcome == "counted"
