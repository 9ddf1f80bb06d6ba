"""Subscribers, sessions and transfers: what happens to those who are slow, and to those who come twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from moonfed.assignment import Assignment, RunEnded
from moonfed.blobs import BlobDirectory, BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.coordinator.records import AttemptId, RunEvent
from moonfed.coordinator.rounds.events import DeadlinePassed, RetryDue, StartTimer, TimedEvent
from moonfed.coordinator.rpc import flow_control
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import SLOW_SECONDS, SMALL_PART, FlowControl, receive
from moonfed.coordinator.runs.subscribers import PROGRESS_LENGTH, QUEUE_LENGTH, Subscribers
from moonfed.coordinator.runs.timers import Timers
from moonfed.coordinator.updates.transfer import Transfers
from moonfed.errors import InvalidInput, Unavailable, WrongState
from moonfed.training_spec import TrainingSpec
from moonfed.transport import PART_SIZE
from moonfed.v1 import blob_pb2
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE

T = TypeVar("T")


async def collect(items: AsyncIterator[T], into: list[T]) -> None:
    """Keeps what came before the error that ends it."""
    async for item in items:
        into.append(item)  # noqa: PERF401


def test_a_watcher_that_falls_behind_is_cut_off_and_the_others_are_not() -> None:
    async def scenario() -> None:
        subscribers = Subscribers()
        slow, quick = subscribers.add(), subscribers.add()
        seen = []
        for number in range(QUEUE_LENGTH + 10):
            subscribers.publish(RunEvent(kind="round_opened", round=number))
            seen.append((await anext(quick.events())).round)
        assert seen == list(range(QUEUE_LENGTH + 10))
        received: list[RunEvent] = []
        with pytest.raises(Unavailable, match="fell behind"):
            await collect(slow.events(), received)
        assert len(received) == QUEUE_LENGTH

    asyncio.run(scenario())


def test_progress_is_dropped_first() -> None:
    async def scenario() -> None:
        subscribers = Subscribers()
        subscriber = subscribers.add()
        for _ in range(2 * QUEUE_LENGTH):
            subscribers.publish(RunEvent(kind="progress"))
        subscribers.publish(RunEvent(kind="ended"))
        subscribers.close()
        kinds = [event.kind async for event in subscriber.events()]
        assert kinds == ["progress"] * PROGRESS_LENGTH + ["ended"]

    asyncio.run(scenario())


def device_info(device: str = "cam-1") -> DeviceInfo:
    return DeviceInfo(device=device, contract_version=CONTRACT_VERSION, plan_interfaces=(PLAN_INTERFACE,), platform={})


def assignment(attempt: int) -> Assignment:
    ref = ref_of_bytes(b"")
    return Assignment(
        id=AttemptId(run="r", round=1, attempt=attempt),
        manifest=ref,
        blobs={"model": ref},
        training=TrainingSpec(epochs=1, batch_size=1),
        seed=0,
    )


def test_an_assignment_is_sent_once_in_a_session() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        session = sessions.open(device_info())
        for attempt in (1, 1, 2, 1):
            session.assign(assignment(attempt))
        session.close(WrongState("over"))
        received: list[Assignment] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.assignments(), received)
        assert [work.id.attempt for work in received] == [1, 2]

    asyncio.run(scenario())


def test_leaving_late_does_not_end_the_newer_session() -> None:
    async def scenario() -> None:
        sessions = Sessions()
        old = sessions.open(device_info())
        new = sessions.open(device_info())
        sessions.discard(old)
        assert sessions.find("cam-1") is new
        sessions.discard(new)
        assert sessions.find("cam-1") is None

    asyncio.run(scenario())


def test_a_device_that_talks_too_much_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'cam-1' describes itself in 200 words"):
        DeviceInfo(
            device="cam-1",
            contract_version=CONTRACT_VERSION,
            plan_interfaces=(),
            platform={str(number): "" for number in range(100)},
        )


@pytest.mark.parametrize("runs", [("",), ("r" * 129,), ("a\nb",), ("r",) * 65])
def test_a_device_that_names_too_much_or_no_names_is_refused(runs: tuple[str, ...]) -> None:
    with pytest.raises(
        InvalidInput, match=r"runs names (''|'r{128}'|'a\\nb'|65 runs); it must be (at most 64|1 to 128)"
    ):
        replace(device_info(), runs=runs)
    assert replace(device_info(), runs=("r" * 128,) * 64).runs


def test_the_end_of_a_run_is_sent_once_in_a_session() -> None:
    async def scenario() -> None:
        session = Sessions().open(device_info())
        for run in ("a", "b", "a"):
            session.notify_ended(RunEnded(run=run))
        session.close(WrongState("over"))
        received: list[Assignment | RunEnded] = []
        with pytest.raises(WrongState, match="over"):
            await collect(session.messages(), received)
        assert received == [RunEnded(run="a"), RunEnded(run="b")]

    asyncio.run(scenario())


def test_a_newer_upload_of_a_file_takes_over(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)

    async def scenario() -> None:
        uploads = Transfers()
        old, offsets = await uploads.begin({ref: tmp_path / "file"})
        assert offsets == {ref.sha256: 0}
        await old.append(ref.sha256, 0, content[:4])
        new, offsets = await uploads.begin({ref: tmp_path / "file"})
        assert offsets == {ref.sha256: 4}
        with pytest.raises(WrongState, match="taken over"):
            await old.append(ref.sha256, 4, content[4:])
        with pytest.raises(WrongState, match="taken over"):
            async with old.held():
                pass
        await new.append(ref.sha256, 4, content[4:])
        await old.close()
        async with new.held():
            assert new.finish()[ref.sha256].read_bytes() == content
        await new.close()

    asyncio.run(scenario())


def test_a_timer_is_forgotten_once_it_has_fired_or_its_attempt_is_over() -> None:
    async def scenario() -> None:
        fired: asyncio.Queue[TimedEvent] = asyncio.Queue()
        timers = Timers(fired.put_nowait)
        soon = RetryDue(round=1, attempt=1)
        timers.start(StartTimer(seconds=0, event=soon))
        timers.start(StartTimer(seconds=60, event=DeadlinePassed(round=1, attempt=1)))
        assert await fired.get() == soon
        assert list(timers._running) == [DeadlinePassed(round=1, attempt=1)]
        timers.start(StartTimer(seconds=60, event=DeadlinePassed(round=1, attempt=2)))
        assert list(timers._running) == [DeadlinePassed(round=1, attempt=2)]
        timers.cancel()
        assert not timers._running

    asyncio.run(scenario())


def test_a_stream_that_falls_silent_or_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_streams_take_turns_and_the_slow_ones_keep_nobody_waiting(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_slow_streams_have_so_many_bytes_under_way_and_those_beyond_wait(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_turn_ends_for_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_stream_that_ends_gives_its_place_back() -> None:
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


def test_a_part_of_an_unknown_blob_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        upload, _ = await Transfers().begin({ref_of_bytes(b"abc"): tmp_path / "file"})
        with pytest.raises(InvalidInput, match="still to be sent"):
            await upload.append("0" * 64, 0, b"abc")
        await upload.close()

    asyncio.run(scenario())


def test_of_many_uploads_that_wait_for_the_same_one_the_last_goes_on(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)

    async def scenario() -> None:
        uploads, path = Transfers(), tmp_path / "file"
        old, _ = await uploads.begin({ref: path})
        await old.append(ref.sha256, 0, content[:4])
        async with old.held():
            begins = [asyncio.create_task(uploads.begin({ref: path})) for _ in range(3)]
            await asyncio.sleep(0)
        begun = await asyncio.gather(*begins, return_exceptions=True)
        live = [outcome for outcome in begun if not isinstance(outcome, BaseException)]
        for upload, offsets in live[:-1]:
            assert offsets == {ref.sha256: 4}
            with pytest.raises(WrongState, match="taken over"):
                await upload.append(ref.sha256, 4, content[4:])
        assert all(isinstance(outcome, WrongState | tuple) for outcome in begun)
        await live[-1][0].append(ref.sha256, 4, content[4:])
        async with live[-1][0].held():
            assert live[-1][0].finish()[ref.sha256].read_bytes() == content
        await live[-1][0].close()

    asyncio.run(scenario())


def test_nobody_writes_to_a_file_that_was_checked_until_it_has_its_place(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)
    longer = replace(ref, size=len(content) + 5)  # the same name with another size must not reach those bytes either

    async def scenario() -> None:
        uploads, path, place = Transfers(), tmp_path / "file", tmp_path / "place"
        first, _ = await uploads.begin({ref: path})
        await first.append(ref.sha256, 0, content)
        async with first.held():
            checked = first.finish()[ref.sha256]
            second = asyncio.create_task(uploads.begin({longer: path}))
            await asyncio.sleep(0.05)
            checked.replace(place)
        upload, offsets = await second
        assert offsets == {ref.sha256: 0}
        await upload.append(ref.sha256, 0, b"other")
        await upload.close()
        assert place.read_bytes() == content

    asyncio.run(scenario())


def test_a_blob_with_two_sizes_is_refused(tmp_path: Path) -> None:
    ref = ref_of_bytes(b"abc")
    with pytest.raises(InvalidInput, match="two sizes"):
        asyncio.run(Transfers().begin({ref: tmp_path / "file", replace(ref, size=9): tmp_path / "file"}))


def test_an_upload_that_is_cancelled_while_it_begins_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, opening, go_on = ref_of_bytes(b"abc"), threading.Event(), threading.Event()

    class Slow(Incoming):
        def __init__(self, path: Path, ref: BlobRef) -> None:
            opening.set()
            go_on.wait(20)
            super().__init__(path, ref)

    monkeypatch.setattr("moonfed.coordinator.updates.transfer.Incoming", Slow)

    async def scenario() -> None:
        uploads = Transfers()
        begun = asyncio.create_task(uploads.begin({ref: tmp_path / "file"}))
        await asyncio.to_thread(opening.wait, 20)
        begun.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert not uploads._by_file

    asyncio.run(scenario())
