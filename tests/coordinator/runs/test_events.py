"""Publication of a run's events: the log's lines, and what subscribers receive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from moonfed.control.events import Ended, MetricsRecorded, RoundCommitted, RunEvent
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.rounds.events import STOPPED, Abandon, Assign, Discard, Lose, Open, Resumed
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.runs.events import EventPublisher
from tests.support.operator_records import event, run_of
from tests.support.store_records import FIRST, MODEL

OPEN = OpenRound(round=1, attempt=1, cohort=("a", "b", "c"), reported=frozenset("a"))
RUN_SHOWN = run_of(RunSettings(rounds=1), status="finished")


def published(act: Callable[[EventPublisher], object]) -> list[Any]:
    """Return what a subscriber receives."""

    async def scenario() -> list[Any]:
        publisher = EventPublisher("digits")
        subscriber = publisher.subscribers.add()
        act(publisher)
        publisher.subscribers.close()
        return [found async for found in subscriber.events()]

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize(
    ("outcome", "kind", "level"),
    [
        ("accepted", "update_received", logging.INFO),
        ("rejected", "update_rejected", logging.WARNING),
        ("declined", "device_declined", logging.WARNING),
    ],
)
def test_a_report_counts_the_devices_that_the_round_still_waits_for(
    outcome: str, kind: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    report = DeviceReport(id=FIRST, device="b", outcome=outcome, reason="busy")  # type: ignore[arg-type]
    (found,) = published(lambda publisher: publisher.report(report, OPEN))
    assert found == event(kind, round=1, attempt=1, device="b", pending=1, reason="busy")
    (line,) = caplog.records
    subject = "b" if outcome == "declined" else "b's update"  # the device declined, and has sent none
    assert (line.levelno, line.getMessage()) == (level, f"{FIRST}: {subject} {outcome}: busy")


def test_a_report_of_a_round_that_has_closed_waits_for_nobody() -> None:
    report = DeviceReport(id=FIRST, device="b", outcome="accepted")
    (found,) = published(lambda publisher: publisher.report(report, None))
    assert found.pending == 0


@pytest.mark.parametrize(
    ("command", "expected", "line"),
    [
        (
            Open(round=1, attempt=1, cohort=("a", "b")),
            event("round_opened", round=1, attempt=1, cohort=("a", "b")),
            f"{FIRST} opened for a, b",
        ),
        (
            Open(round=1, attempt=1, cohort=("a", "b", "c"), reused={"c": 1, "a": 2}),
            event("round_opened", round=1, attempt=1, cohort=("a", "b", "c"), reused=("a", "c")),
            f"{FIRST} opened for a, b, c",
        ),
        (
            Lose(round=1, attempt=1, device="a"),
            event("device_lost", round=1, attempt=1, device="a"),
            f"{FIRST}: a is lost",
        ),
        (
            Discard(round=1, attempt=1, device="a"),
            event(
                "update_rejected",
                round=1,
                attempt=1,
                device="a",
                reason="the coordinator's copy is damaged or missing",
            ),
            f"{FIRST}: a's update rejected: the coordinator's copy is damaged or missing",
        ),
        (
            Abandon(round=1, attempt=1, missing=("a",), reason="too few"),
            event("round_abandoned", round=1, attempt=1, missing=("a",), reason="too few"),
            f"{FIRST} abandoned: too few",
        ),
    ],
)
def test_commands_that_concern_operators_are_published_and_logged(
    command: Open | Lose | Discard | Abandon, expected: RunEvent, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert published(lambda publisher: publisher.on_step(Resumed(online={}), State(), [command])) == [expected]
    assert [record.getMessage() for record in caplog.records] == [line]


def test_other_commands_are_neither_published_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        published(
            lambda publisher: publisher.on_step(Resumed(online={}), State(), [Assign(round=1, attempt=1, device="a")])
        )
        == []
    )
    assert caplog.records == []


@pytest.mark.parametrize(("reason", "level"), [(STOPPED, logging.INFO), ("too few", logging.WARNING)])
def test_only_an_operators_stop_is_no_warning(reason: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    published(
        lambda publisher: publisher.on_step(
            Resumed(online={}), State(), [Abandon(round=1, attempt=1, missing=(), reason=reason)]
        )
    )
    assert [record.levelno for record in caplog.records] == [level]


def test_a_commit_names_the_devices_with_incidents_once(caplog: pytest.LogCaptureFixture) -> None:
    incidents = [Incident(device=device, description="was scaled down") for device in ("b", "a", "b")]
    committed, metrics = published(
        lambda publisher: publisher.commit(FIRST, ("a", "b"), MODEL, {"loss": 0.25}, incidents)
    )
    assert (type(committed), committed.counted, committed.model) == (RoundCommitted, ("a", "b"), MODEL)
    assert committed.incidents == "incidents: a, b"
    assert metrics == MetricsRecorded(round=1, metrics={"loss": 0.25})
    assert [record.getMessage() for record in caplog.records] == [
        f"{FIRST}: b: was scaled down",
        f"{FIRST}: a: was scaled down",
        f"{FIRST}: b: was scaled down",
        f"{FIRST} committed with 2 updates; loss 0.2500",
    ]


def test_a_reason_to_wait_is_published_whenever_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    def act(publisher: EventPublisher) -> None:
        for reason in ("for a", "for a", "", "for a", "for b"):
            publisher.waiting(reason)

    assert [found.reason for found in published(act)] == ["for a", "for a", "for b"]
    assert [record.getMessage() for record in caplog.records] == [
        f"run 'digits': {reason}" for reason in ("for a", "for a", "for b")
    ]


def test_the_end_of_a_run_ends_its_subscriptions() -> None:
    def act(publisher: EventPublisher) -> None:
        publisher.end(RUN_SHOWN)
        publisher.progress(FIRST, "a", 0.5)

    (ended,) = published(act)
    assert ended == Ended(run=RUN_SHOWN)
