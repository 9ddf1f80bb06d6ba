"""Logging of events that anybody can cause."""

from __future__ import annotations

import logging

import pytest

from moonfed.observability.flood_limit import MAX_CAUSES, PERIOD_SECONDS
from moonfed.observability.flood_log import LINES, FloodLog
from tests.support.clock import Clock

LOG = logging.getLogger("tested")


def test_a_cause_gets_a_few_lines_and_then_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = FloodLog(LOG, clock)
    for number in range(1000):
        log.write(logging.WARNING, "10.0.0.7", "guess %d", number)
    log.write(logging.WARNING, "10.0.0.8", "another's")
    assert [record.message for record in caplog.records] == [*(f"guess {n}" for n in range(LINES)), "another's"]
    caplog.clear()
    log.summarise()
    assert not caplog.records
    clock.now += PERIOD_SECONDS
    log.summarise()
    assert caplog.messages == [f"10.0.0.7: {1000 - LINES} more such events in 60 s"]
    log.write(logging.WARNING, "10.0.0.7", "guess again")
    assert caplog.messages[-1] == "guess again"


def test_the_next_event_brings_the_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = FloodLog(LOG, clock)
    for _ in range(LINES + 3):
        log.write(logging.WARNING, "a", "event")
    clock.now += PERIOD_SECONDS
    log.write(logging.WARNING, "b", "event")
    assert caplog.messages[-2:] == ["a: 3 more such events in 60 s", "event"]


def test_many_causes_share_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    log = FloodLog(LOG, Clock())
    for number in range(2 * MAX_CAUSES):
        log.write(logging.WARNING, f"address {number}", "event")
    assert len(caplog.records) == MAX_CAUSES + LINES


def test_an_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        FloodLog(LOG).write(logging.ERROR, "ValueError", "a call failed", error=error)
    assert "Traceback" in caplog.text
