"""Progress reports to a coordinator that the test controls, by a clock that it controls, too."""

from __future__ import annotations

import logging
import threading
from typing import cast

import pytest

from moonfed.edge_client.agent import heartbeat as module
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.heartbeat import (
    FETCH_REPORT_SECONDS,
    REPORT_SECONDS,
    ProgressReporter,
    retry_advice,
)
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.worker_process import Heartbeat
from moonfed.errors import MoonfedError, NotFound, TooLate, Unavailable, WrongState
from moonfed.fleet.assignment import Assignment
from moonfed.fleet.messages import read_assignment
from tests.edge_client.conftest import Bundle
from tests.support.clock import Clock


class FakeConnection:
    def __init__(self) -> None:
        self.online = threading.Event()
        self.online.set()
        self.fractions: list[float] = []
        self.answer: TooLate | MoonfedError | None = None
        self.raises = False

    def report(self, assignment: Assignment, fraction: float) -> MoonfedError | None:
        self.fractions.append(fraction)
        if self.answer and self.raises:
            raise self.answer
        return self.answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def reporter(assignment: Assignment, connection: FakeConnection, inbox: Inbox, clock: Clock) -> ProgressReporter:
    return ProgressReporter(assignment, cast(FleetConnection, connection), inbox)


def heartbeat(fraction: float, epoch: int = 0, loss: float | None = None) -> Heartbeat:
    return Heartbeat(fraction=fraction, epoch=epoch, loss=loss)


def test_while_fetching_it_reports_rarely(reporter: ProgressReporter, connection: FakeConnection, clock: Clock) -> None:
    for _ in range(25):
        assert reporter.should_fetch()
        clock.now += FETCH_REPORT_SECONDS / 10
    assert connection.fractions == [0.0, 0.0]


def test_the_first_heartbeat_is_reported_at_once_and_then_regularly(
    reporter: ProgressReporter, connection: FakeConnection, clock: Clock
) -> None:
    reporter.begin_training()
    for number in range(10):
        assert reporter.should_train(heartbeat(number / 10))
        assert reporter.should_train(None)  # nothing new
        clock.now += REPORT_SECONDS / 4
    assert connection.fractions == [0.0, 0.4, 0.8]


def test_nothing_is_reported_while_the_session_is_offline(
    reporter: ProgressReporter, connection: FakeConnection
) -> None:
    reporter.begin_training()
    connection.online.clear()
    assert reporter.should_train(heartbeat(0.5))
    assert connection.fractions == []


@pytest.mark.parametrize(
    ("answer", "raises", "advice"),
    [
        (TooLate("the round has closed"), False, ""),
        (TooLate("enough updates", 42.4), False, "; it may need this device again in about 42 s"),
        (WrongState("the round has closed"), True, ""),
        (NotFound("no such run"), True, ""),
    ],
)
def test_a_cancelled_assignment_is_stopped_for_good(
    answer: MoonfedError,
    raises: bool,
    advice: str,
    reporter: ProgressReporter,
    connection: FakeConnection,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter.begin_training()
    connection.answer, connection.raises = answer, raises
    with caplog.at_level(logging.INFO):
        assert not reporter.should_train(heartbeat(0.5))
    assert caplog.messages == [f"run tested, round 1: the coordinator cancelled it: {answer}{advice}"]
    connection.answer = None
    clock.now += 100
    assert not reporter.should_train(heartbeat(0.6))
    assert not reporter.should_fetch()
    assert connection.fractions == [0.5]


def test_a_report_that_fails_stops_nothing(
    reporter: ProgressReporter, connection: FakeConnection, clock: Clock
) -> None:
    reporter.begin_training()
    connection.answer, connection.raises = Unavailable("the line broke"), True
    assert reporter.should_train(heartbeat(0.1))
    assert reporter.should_train(heartbeat(0.2))
    clock.now += REPORT_SECONDS
    assert reporter.should_train(heartbeat(0.3))
    assert connection.fractions == [0.1, 0.3]


def test_training_stops_for_a_newer_task_of_the_run(
    reporter: ProgressReporter, connection: FakeConnection, inbox: Inbox, bundle: Bundle
) -> None:
    reporter.begin_training()
    inbox.put(read_assignment(bundle.assignment(run="another")))
    assert reporter.should_train(None)
    inbox.put(read_assignment(bundle.assignment(round=2)))
    assert not reporter.should_train(None)
    assert not reporter.should_train(heartbeat(0.5))
    assert connection.fractions == []


def test_each_epoch_is_logged_once(reporter: ProgressReporter, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for epoch, loss in ((0, None), (1, None), (1, 0.5), (2, 0.25)):
            reporter.should_train(heartbeat(0.1, epoch, loss))
    assert [message.partition(": ")[2] for message in caplog.messages] == ["epoch 1 of 2", "epoch 2 of 2, loss 0.2500"]


def test_only_a_late_update_has_advice_when_to_retry() -> None:
    assert retry_advice(TooLate("late", 90.0)) == "; it may need this device again in about 90 s"
    assert retry_advice(TooLate("late", 0.0)) == retry_advice(NotFound("no run")) == ""
