"""A run's events for a page: gathered, bounded, and resumed after an interruption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.control.events import RunEvent
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.console.control import load_operators
from moonfed.coordinator.console.live import MOST_EVENTS, _Batch, live_run
from moonfed.coordinator.console.settings import ConsoleSettings
from tests.coordinator.console.conftest import Federation
from tests.support.operator_records import event, run_of

pytestmark = pytest.mark.slow


def parsed(messages: list[bytes]) -> list[tuple[str, Any]]:
    found = []
    for message in messages:
        name, data = message.decode().strip().split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def drained(*events: RunEvent) -> list[tuple[str, Any]]:
    async def gather() -> list[bytes]:
        batch = _Batch()
        for one in events:
            batch.add(one)
        return batch.drain()

    return parsed(asyncio.run(gather()))


def test_events_are_gathered_and_progress_is_the_latest() -> None:
    found = drained(
        event("progress", round=1, attempt=1, device="a", fraction=0.25),
        event("progress", round=1, attempt=1, device="a", fraction=0.5),
        event("update_received", round=1, attempt=1, device="b"),
    )
    events = [{"event": "update_received", "round": 1, "attempt": 1, "device": "b", "pending": 0}]
    assert found == [("events", {"events": events, "progress": {"a": 0.5}})]
    assert drained() == []


def test_a_snapshot_replaces_what_waits_and_the_end_is_last() -> None:
    run = run_of(RunSettings(rounds=1), status="finished")
    found = drained(
        event("update_received", round=1, attempt=1, device="b"),
        event("snapshot", run=run),
        event("paused"),
        event("ended", run=run),
    )
    assert [name for name, _ in found] == ["snapshot", "events", "snapshot"]


def test_too_many_events_call_for_a_snapshot() -> None:
    async def overflow() -> bool:
        batch = _Batch()
        for _ in range(MOST_EVENTS + 1):
            batch.add(event("update_received", round=1, attempt=1, device="b"))
        return batch.overflown

    assert asyncio.run(overflow())


def test_an_unknown_run_fails_and_ends_the_stream(federation: Federation) -> None:
    async def follow() -> list[bytes]:
        (operator,) = load_operators(ConsoleSettings(identities=(Path(federation.identity),))).values()
        try:
            return [message async for message in live_run(operator.client.connection, "other")]
        finally:
            await operator.client.close()

    ((name, document),) = parsed(asyncio.run(follow()))
    assert (name, document["reason"]) == ("failed", "there is no run 'other'")
