"""Flow control: turns, slow streams, and silent senders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from moonfed.blobs import BlobDirectory
from moonfed.coordinator.rpc import flow_control
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import SLOW_SECONDS, SMALL_PART, FlowControl, receive
from moonfed.errors import Unavailable
from moonfed.transport import PART_SIZE
from moonfed.v1 import blob_pb2
from tests.support.streams import collect


def test_a_stream_that_falls_silent_or_never_ends_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def messages(pauses: list[float]) -> AsyncIterator[float]:
        for pause in pauses:
            await asyncio.sleep(pause)
            yield pause

    async def heard(pauses: list[float]) -> int:
        received: list[float] = []
        with suppress(Unavailable):
            await collect(receive(messages(pauses), FlowControl()), received)
        return len(received)

    assert asyncio.run(heard([0, 0, 0])) == 3
    monkeypatch.setattr(flow_control, "PART_SECONDS", 2.0)
    assert asyncio.run(heard([0, 0, 60, 0])) == 2
    monkeypatch.setattr(flow_control, "STREAM_SECONDS", 2.0)
    assert 0 < asyncio.run(heard([0.05] * 1000)) < 1000


@pytest.mark.parametrize("busy", [False, True])
def test_streams_take_turns_and_slow_ones_do_not_block_others(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> bool:
        control = FlowControl(slots=1)
        first, second = control.stream(), control.stream()
        await first.next_part()
        waiting = asyncio.create_task(second.next_part())
        done, _ = await asyncio.wait([waiting], timeout=5 * SLOW_SECONDS if busy else 20.0)
        let_in = bool(done)
        first.release()
        await waiting
        return let_in

    monkeypatch.setattr(time, "process_time", time.monotonic if busy else lambda: 1.0)
    assert asyncio.run(scenario()) is not busy, "only who is slow although there is nothing else to do makes room"


def test_slow_streams_share_a_byte_limit_and_wait_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        control = FlowControl(slots=1, slow_bytes=PART_SIZE + PART_SIZE // 2)
        small, large, second, third = control.stream(SMALL_PART), control.stream(), control.stream(), control.stream()
        assert await small.next_part() == PART_SIZE // 2
        assert await large.next_part() == PART_SIZE, "the first one is slow and made room"
        assert await second.next_part() == PART_SIZE, "and so is this one"
        waiting = asyncio.create_task(third.next_part())
        await asyncio.sleep(5 * SLOW_SECONDS)
        assert not waiting.done(), "slow streams have no bytes left"
        large.release()
        await waiting
        assert control.slow_bytes == 0
        third.release()
        assert await small.next_part() == SMALL_PART, "as it was slow, and perhaps is"
        for turn in (small, second):
            turn.release()
        assert control.slow_bytes == PART_SIZE + PART_SIZE // 2
        assert not control.free.locked()

    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_a_stream_ends_its_turn_and_itself_with_a_small_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", time.monotonic)

    async def sizes(content: bytes) -> list[int]:
        blobs = BlobDirectory(tmp_path)
        request = blob_pb2.FetchRequest(sha256=blobs.put_bytes(content).sha256)
        parts = [blob_pb2.Chunk.FromString(part).data async for part in chunks(blobs, request, FlowControl())]
        assert b"".join(parts) == content
        return [len(part) for part in parts]

    half, content = PART_SIZE // 2, bytes(3 * PART_SIZE)
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 3600.0)
    assert asyncio.run(sizes(content)) == [half, PART_SIZE, PART_SIZE, half - SMALL_PART, SMALL_PART]
    assert asyncio.run(sizes(bytes(half))) == [half]
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 0.0)
    assert asyncio.run(sizes(content))[:4] == [half, SMALL_PART, half, SMALL_PART]


def test_a_turn_ends_when_another_stream_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(control: FlowControl, name: str, order: list[str]) -> None:
        turn = control.stream()
        for _ in range(20):
            await turn.next_part()
            order.append(name)
            await asyncio.sleep(0.01)
        turn.release()

    async def scenario() -> str:
        order: list[str] = []
        control = FlowControl(slots=1)
        await asyncio.gather(stream(control, "a", order), stream(control, "b", order))
        return "".join(order)

    monkeypatch.setattr(time, "process_time", time.monotonic)
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 60.0)
    assert asyncio.run(scenario()) == 20 * "a" + 20 * "b"
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 0.02)
    assert "ba" in asyncio.run(scenario())


def test_a_stream_that_ends_releases_its_slot() -> None:
    async def messages() -> AsyncIterator[int]:
        for number in range(3):  # the first is the header, which needs no place
            yield number

    async def scenario() -> None:
        control = FlowControl(slots=1)
        for _ in range(3):
            received = receive(messages(), control)
            assert [await anext(received), await anext(received)] == [0, 1]
            await received.aclose()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
