"""A run's events for a page: gathered, bounded, and resumed after an interruption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.console.control import load_operators
from moonfed.coordinator.console.live import MOST_EVENTS, _Batch, live_run
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.v1 import control_pb2
from tests.coordinator.console.conftest import Federation

pytestmark = pytest.mark.slow

Kind = control_pb2.EventKind


def parsed(messages: list[bytes]) -> list[tuple[str, Any]]:
    found = []
    for message in messages:
        name, data = message.decode().strip().split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def drained(*events: control_pb2.RunEvent) -> list[tuple[str, Any]]:
    async def gather() -> list[bytes]:
        batch = _Batch()
        for event in events:
            batch.add(event)
        return batch.drain()

    return parsed(asyncio.run(gather()))


def test_events_are_gathered_and_progress_is_the_latest() -> None:
    found = drained(
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_PROGRESS, device="a", fraction=0.25),
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_PROGRESS, device="a", fraction=0.5),
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_UPDATE_RECEIVED, device="b"),
    )
    events = [{"event": "update_received", "device": "b"}]
    assert found == [("events", {"events": events, "progress": {"a": 0.5}})]
    assert drained() == []


def test_a_snapshot_replaces_what_waits_and_the_end_is_last() -> None:
    run = control_pb2.Run(run="r", status=control_pb2.RUN_STATUS_FINISHED)
    found = drained(
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_UPDATE_RECEIVED, device="b"),
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_SNAPSHOT, run=run),
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_PAUSED),
        control_pb2.RunEvent(kind=Kind.EVENT_KIND_ENDED, run=run),
    )
    assert [name for name, _ in found] == ["snapshot", "events", "snapshot"]


def test_too_many_events_call_for_a_snapshot() -> None:
    async def overflow() -> bool:
        batch = _Batch()
        for _ in range(MOST_EVENTS + 1):
            batch.add(control_pb2.RunEvent(kind=Kind.EVENT_KIND_UPDATE_RECEIVED, device="b"))
        return batch.overflown

    assert asyncio.run(overflow())


def test_an_unknown_run_fails_and_ends_the_stream(federation: Federation) -> None:
    async def follow() -> list[bytes]:
        (operator,) = load_operators(ConsoleSettings(identities=(Path(federation.identity),))).values()
        try:
            return [message async for message in live_run(operator.control, "other")]
        finally:
            await operator.control.close()

    ((name, document),) = parsed(asyncio.run(follow()))
    assert (name, document["reason"]) == ("failed", "there is no run 'other'")
