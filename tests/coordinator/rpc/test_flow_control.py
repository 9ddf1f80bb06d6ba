"""Flow control: turns, slow streams, and silent senders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.coordinator.rpc import blob_stream, flow_control
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import SLOW_BYTES, SLOW_SECONDS, SMALL_PART, FlowControl, receive
from moonfed.errors import Unavailable
from moonfed.transport.client import PART_SIZE
from moonfed.v1 import blob_pb2
from tests.support.streams import collect

pytestmark = pytest.mark.slow

BRIEF = 0.02  # seconds after which a stream is slow, where a test waits for several times that


def test_a_stream_that_falls_silent_or_never_ends_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def messages(pauses: list[float]) -> AsyncIterator[float]:
        for pause in pauses:
            await asyncio.sleep(pause)
            yield pause

    async def heard(pauses: list[float]) -> int:
        received: list[float] = []
        with suppress(Unavailable):
            await collect(receive(messages(pauses), FlowControl(), "cam-1"), received)
        return len(received)

    assert asyncio.run(heard([0, 0, 0])) == 3
    monkeypatch.setattr(flow_control, "PART_SECONDS", 0.5)
    assert asyncio.run(heard([0, 0, 60, 0])) == 2
    monkeypatch.setattr(flow_control, "STREAM_SECONDS", 0.5)
    assert 0 < asyncio.run(heard([0.05] * 1000)) < 1000


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the coordinator look idle, whatever else the machine does."""
    monkeypatch.setattr(time, "process_time", lambda: 1.0)


def test_while_the_coordinator_is_busy_no_stream_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "process_time", time.monotonic)
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", BRIEF)

    async def scenario() -> bool:
        control = FlowControl(slots=1)
        first, second = control.stream("cam-1"), control.stream("cam-2")
        await first.next_part()
        waiting = asyncio.create_task(second.next_part())
        done, _ = await asyncio.wait([waiting], timeout=5 * BRIEF)
        first.release()
        await waiting
        return bool(done)

    assert not asyncio.run(scenario())


def test_a_slow_stream_passes_its_slot_on() -> None:
    async def scenario() -> None:
        control = FlowControl(slots=1)
        first, second = control.stream("cam-1"), control.stream("cam-2")
        await first.next_part()
        await second.next_part()
        assert control.slow_bytes == SLOW_BYTES - PART_SIZE
        first.release()
        second.release()
        assert (control.free, control.slow_bytes) == (1, SLOW_BYTES)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_slow_streams_share_a_byte_limit_and_wait_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", BRIEF)

    async def scenario() -> None:
        control = FlowControl(slots=1, slow_bytes=PART_SIZE + SMALL_PART)
        small, large = control.stream("cam-1", smallest=SMALL_PART), control.stream("cam-2")
        second, third = control.stream("cam-3"), control.stream("cam-4")
        assert await small.next_part() == SMALL_PART, "its speed is not known yet"
        assert await large.next_part() == PART_SIZE, "the first one is slow and made room"
        assert await second.next_part() == PART_SIZE, "and so is this one"
        waiting = asyncio.create_task(third.next_part())
        await asyncio.sleep(5 * BRIEF)
        assert not waiting.done(), "slow streams have no bytes left"
        large.release()
        await waiting
        assert control.slow_bytes == 0
        third.release()
        assert await small.next_part() == SMALL_PART, "as it was slow, and perhaps is"
        for turn in (small, second):
            turn.release()
        assert control.slow_bytes == PART_SIZE + SMALL_PART
        assert control.free == 1

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


@pytest.mark.parametrize("of_one", [1, 2])
def test_one_callers_streams_delay_no_other_caller(of_one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device opens 24 streams and lets all of them stall."""
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", BRIEF)

    async def scenario() -> None:
        control = FlowControl(slots=2, slow_bytes=4 * PART_SIZE, of_one=of_one)
        greedy = [asyncio.create_task(control.stream("greedy").next_part()) for _ in range(24)]
        await asyncio.sleep(5 * BRIEF)
        assert sum(task.done() for task in greedy) == of_one
        assert control.slow_bytes == (4 - of_one) * PART_SIZE
        for _ in range(3):  # turns
            for name in ("cam-1", "cam-2", "cam-3"):
                stream = control.stream(name)
                await stream.next_part()
                stream.release()
        for task in greedy:
            task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_callers_take_turns_however_many_streams_each_has() -> None:
    async def scenario() -> list[str]:
        control, order = FlowControl(slots=1), list[str]()

        async def stream(name: str) -> None:
            turn = control.stream(name)
            await turn.next_part()
            order.append(name)
            await asyncio.sleep(0)
            turn.release()

        await asyncio.gather(*(stream(name) for name in ("a", "a", "a", "a", "b", "c", "b")))
        return order

    assert asyncio.run(asyncio.wait_for(scenario(), 20.0)) == ["a", "b", "c", "a", "b", "a", "a"]


def test_a_cancelled_stream_keeps_no_slot() -> None:
    async def scenario() -> None:
        control = FlowControl(slots=1)
        first, second = control.stream("cam-1"), control.stream("cam-2")
        await first.next_part()
        tasks = [asyncio.create_task(control.stream(name).next_part()) for name in ("cam-1", "cam-2", "cam-3")]
        await asyncio.sleep(0)
        tasks[0].cancel()  # while it waits
        first.release()
        tasks[1].cancel()  # just after it got the slot
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [True, True, False]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.next_part(), SLOW_SECONDS / 2)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


@pytest.mark.parametrize("slow_bytes", [0, SLOW_BYTES])
def test_a_part_that_is_not_read_in_time_ends_its_stream(slow_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds with and without a slot."""
    monkeypatch.setattr(flow_control, "PART_SECONDS", 2 * SLOW_SECONDS)

    async def scenario() -> None:
        ended = asyncio.Event()
        control = FlowControl(slots=1, slow_bytes=slow_bytes)
        stream = control.stream("cam-1", stalled=ended.set)
        await stream.next_part()
        assert not ended.is_set()
        await ended.wait()
        stream.release()
        assert (control.free, control.slow_bytes) == (1, slow_bytes)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_a_stream_ends_its_turn_and_itself_with_a_small_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", 60.0)

    async def sizes(content: bytes) -> list[int]:
        blobs = BlobDirectory(tmp_path)
        request = blob_pb2.FetchRequest(sha256=blobs.put_bytes(content).sha256)
        slot = FlowControl().stream("cam-1", smallest=SMALL_PART)
        parts = [blob_pb2.Chunk.FromString(part).data async for part in chunks(blobs, request, slot)]
        assert b"".join(parts) == content
        return [len(part) for part in parts]

    half, small, content = PART_SIZE // 2, SMALL_PART, bytes(3 * PART_SIZE)
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 3600.0)
    growing = [small, 2 * small, 4 * small, 8 * small]
    assert asyncio.run(sizes(content)) == [*growing, PART_SIZE, PART_SIZE, small]
    assert asyncio.run(sizes(content + bytes(half))) == [*growing, PART_SIZE, PART_SIZE, half, small]
    assert asyncio.run(sizes(bytes(small))) == [small]
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 0.0)
    assert asyncio.run(sizes(content))[:5] == [small, small, half, small, half]


def test_a_download_that_never_ends_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        blobs = BlobDirectory(tmp_path)
        request = blob_pb2.FetchRequest(sha256=blobs.put_bytes(bytes(PART_SIZE)).sha256)
        control = FlowControl(slots=1)
        parts = chunks(blobs, request, control.stream("cam-1", smallest=SMALL_PART))
        await anext(parts)
        await asyncio.sleep(0.2)
        with pytest.raises(Unavailable, match="the download took too long; it resumes when it is requested again"):
            await anext(parts)
        assert control.free == 1

    monkeypatch.setattr(blob_stream, "STREAM_SECONDS", 0.1)
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", 60.0)
    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_a_turn_ends_when_another_stream_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(control: FlowControl, name: str, order: list[str]) -> None:
        turn = control.stream(name)
        for _ in range(20):
            await turn.next_part()
            order.append(name)
            await asyncio.sleep(0.002)
        turn.release()

    async def scenario() -> str:
        order: list[str] = []
        control = FlowControl(slots=1)
        await asyncio.gather(stream(control, "a", order), stream(control, "b", order))
        return "".join(order)

    monkeypatch.setattr(flow_control, "SLOW_SECONDS", 60.0)
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 60.0)
    assert asyncio.run(scenario()) == 20 * "a" + 20 * "b"
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 0.004)
    assert "ba" in asyncio.run(scenario())


def test_a_stream_that_ends_releases_its_slot() -> None:
    async def messages() -> AsyncIterator[int]:
        for number in range(3):  # the first is the header, which needs no place
            yield number

    async def scenario() -> None:
        control = FlowControl(slots=1)
        for _ in range(3):
            received = receive(messages(), control, "cam-1")
            assert [await anext(received), await anext(received)] == [0, 1]
            await received.aclose()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


@dataclass
class Uploads:
    """Uploads of many callers through one flow control; a pause precedes each message."""

    control: FlowControl
    ended: list[str] = field(default_factory=list)  # callers whose upload was ended

    async def send(self, caller: str, pauses: Sequence[float], size: int = PART_SIZE) -> int:
        """Send an upload; return how many messages arrived."""
        received: list[float] = []
        try:
            await collect(receive(_messages(pauses), self.control, caller, size_of=lambda _: size), received)
        except Unavailable:
            self.ended.append(caller)
        return len(received)

    async def stall(self, caller: str) -> None:
        """Open one upload after the other, and send nothing but headers."""
        while True:
            await self.send(caller, [0.0, 3600.0])

    def under_way(self, callers: Iterable[str]) -> int:
        return sum(self.control._under_way[caller] for caller in callers)


async def _messages(pauses: Sequence[float]) -> AsyncIterator[float]:
    for pause in pauses:
        await asyncio.sleep(pause)
        yield pause


@asynccontextmanager
async def stalling(stall: Callable[[str], Coroutine[None, None, None]], callers: Sequence[str]) -> AsyncIterator[None]:
    """Let each caller stall its streams, one after the other; a caller that is named twice has two at a time."""
    tasks = [asyncio.create_task(stall(caller)) for caller in callers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


DOZEN = [f"attacker-{number}" for number in range(12)]
FOUR = [f"cam-{number}" for number in range(4)]
QUICK = [0.0] * 6


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SLOW_SECONDS", BRIEF), ("PATIENCE_SECONDS", 20 * BRIEF), ("RELIEF_SECONDS", BRIEF)):
        monkeypatch.setattr(flow_control, name, seconds)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("busy", [False, True])
def test_a_dozen_callers_that_stall_give_way(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy coordinator takes a little longer to see that they are slow."""
    if busy:
        monkeypatch.setattr(time, "process_time", time.monotonic)

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        async with stalling(uploads.stall, DOZEN * 2):
            while uploads.under_way(DOZEN) < uploads.control._places:
                await asyncio.sleep(BRIEF)
            for _ in range(5):
                assert await asyncio.gather(*(uploads.send(caller, QUICK) for caller in FOUR)) == [6] * 4
            assert SMALL_PART in {uploads.control.part_size(caller) for caller in DOZEN}
        assert set(uploads.ended) <= set(DOZEN)

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_callers_that_have_stalled_leave_half_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "PATIENCE_SECONDS", 3600.0)

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        for caller in DOZEN:
            uploads.control.note_stall(caller)
        async with stalling(uploads.stall, DOZEN * 2):
            while uploads.under_way(DOZEN) < 12:
                await asyncio.sleep(BRIEF)
            assert await asyncio.gather(*(uploads.send(caller, QUICK) for caller in FOUR * 4)) == [6] * 16
            assert uploads.under_way(DOZEN) == 12

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_no_more_uploads_give_way_than_there_are_callers_that_wait() -> None:
    """A header has no place that it could give up."""

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        control, slow = uploads.control, [f"slow-{number}" for number in range(24)]
        sent = [asyncio.create_task(uploads.send("cam-2", [3600.0]))]
        sent += [asyncio.create_task(uploads.send(caller, [0.0, 3600.0])) for caller in slow]
        while len(control._stuck) < 8:
            await asyncio.sleep(BRIEF)
        await asyncio.sleep(2 * flow_control.PATIENCE_SECONDS)
        assert uploads.ended == []
        assert await uploads.send("cam-1", QUICK) == 6
        assert len(uploads.ended) == 1
        assert set(uploads.ended) <= set(slow)
        for task in sent:
            task.cancel()
        await asyncio.wait(sent)
        assert (control.free, control.slow_bytes, control._stuck) == (8, SLOW_BYTES, set())

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_slow_uploads_keep_their_places_for_a_while_though_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "PATIENCE_SECONDS", 3600.0)

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        slow = [asyncio.create_task(uploads.send(f"slow-{number}", [0.0, 50 * BRIEF])) for number in range(24)]
        while len(uploads.control._stuck) < 8:
            await asyncio.sleep(BRIEF)
        assert await uploads.send("cam-1", QUICK) == 6
        assert await asyncio.gather(*slow) == [2] * 24
        assert uploads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_an_upload_that_is_slow_but_not_in_the_way_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait, but for the places of uploads that are not slow."""
    monkeypatch.setattr(time, "process_time", time.monotonic)  # none is slow before its patience ends

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        slow = [asyncio.create_task(uploads.send(f"slow-{number}", [0.0, 200 * BRIEF])) for number in range(16)]
        while uploads.control.slow_bytes:
            await asyncio.sleep(BRIEF)
        quick = [uploads.send(f"cam-{number}", [0.0, *[BRIEF / 10] * 50]) for number in range(20)]
        assert await asyncio.gather(*quick) == [51] * 20
        assert {uploads.control.part_size(f"slow-{number}") for number in range(16)} == {PART_SIZE}
        assert await asyncio.gather(*slow) == [2] * 16
        assert uploads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_a_caller_that_has_stalled_takes_the_place_of_one_that_has_too() -> None:
    """An upload that is slow for the first time follows only once it counts as one of them, though it is older."""

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        stalled = DOZEN[:6]
        for caller in (*stalled, "cam-1"):
            uploads.control.note_stall(caller)
        sent = [asyncio.create_task(uploads.send("slow", [0.0, 3600.0]))]
        await asyncio.sleep(BRIEF)
        sent += [asyncio.create_task(uploads.send(caller, [0.0, 3600.0])) for caller in stalled for _ in range(2)]
        await asyncio.sleep(2 * flow_control.PATIENCE_SECONDS)
        assert uploads.under_way(stalled) == 12
        assert await uploads.send("cam-1", QUICK) == 6
        assert uploads.ended == [stalled[0], "slow"]
        for task in sent:
            task.cancel()
        await asyncio.wait(sent)

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_a_callers_next_upload_ends_none_of_its_others() -> None:
    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        uploads.control.note_stall("slow")
        assert await asyncio.gather(*(uploads.send("slow", [0.0, 40 * BRIEF]) for _ in range(3))) == [2] * 3
        assert uploads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


def test_an_upload_is_no_longer_in_the_way_once_slow_ones_have_bytes_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", BRIEF)

    async def scenario() -> None:
        control = FlowControl(slots=2, slow_bytes=PART_SIZE)
        first, second = (control.stream(name, smallest=PART_SIZE) for name in ("cam-1", "cam-2"))
        await first.next_part()
        await until(lambda: not control.slow_bytes)
        await second.next_part()
        await until(lambda: bool(control._stuck))
        first.release()
        await until(lambda: not control.slow_bytes)
        assert not control._stuck
        second.release()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(BRIEF)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


@pytest.mark.usefixtures("impatient")
def test_callers_that_have_stalled_take_turns_in_their_half() -> None:
    """One of them is honest: its connection was bad, and is slow."""

    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        for caller in (*DOZEN, "cam-1"):
            uploads.control.note_stall(caller)
        async with stalling(uploads.stall, DOZEN * 2):
            while uploads.under_way(DOZEN) < 12:
                await asyncio.sleep(BRIEF)
            await asyncio.sleep(5 * BRIEF)
            assert uploads.under_way(DOZEN) <= 12
            assert await uploads.send("cam-1", [0.0, *[2 * BRIEF] * 3]) == 4
        assert set(uploads.ended) <= set(DOZEN)

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_slow_uploads_go_on_while_there_is_room_for_others() -> None:
    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        slow = [asyncio.create_task(uploads.send(f"slow-{number}", [0.0, 60 * BRIEF])) for number in range(16)]
        await asyncio.sleep(5 * BRIEF)
        while not all(task.done() for task in slow):
            assert await asyncio.gather(*(uploads.send(caller, QUICK) for caller in FOUR * 4)) == [6] * 16
        assert [task.result() for task in slow] == [2] * 16
        assert uploads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_slow_uploads_go_on_while_nobody_waits() -> None:
    async def scenario() -> None:
        uploads = Uploads(FlowControl(of_one=2))
        sent = [uploads.send(f"slow-{number}", [0.0, 60 * BRIEF]) for number in range(uploads.control._places)]
        assert set(await asyncio.gather(*sent)) == {2}
        assert uploads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@dataclass
class Downloads:
    """Downloads of many callers through one flow control."""

    control: FlowControl = field(
        default_factory=lambda: FlowControl(slots=2, slow_bytes=2 * PART_SIZE, stalled_part=SMALL_PART)
    )
    ended: list[str] = field(default_factory=list)  # callers whose download was ended

    async def read(self, caller: str, parts: int, pause: float = 0.0) -> list[int]:
        """Read a download's parts; return their sizes, fewer if the download was ended."""
        ended, sizes = asyncio.Event(), list[int]()
        slot = self.control.stream(caller, smallest=SMALL_PART, stalled=ended.set)
        try:
            while len(sizes) < parts and not ended.is_set():
                sizes.append(await slot.next_part())
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause)
        finally:
            slot.release()
        self.ended += [caller] * ended.is_set()
        return sizes

    async def stall(self, caller: str) -> None:
        """Open one download after the other, read up to a part of full size at once, and then nothing."""
        while True:
            ended = asyncio.Event()
            slot = self.control.stream(caller, smallest=SMALL_PART, stalled=ended.set)
            try:
                for _ in range(5):
                    await slot.next_part()
                await ended.wait()
            finally:
                slot.release()
            self.ended.append(caller)


@pytest.mark.usefixtures("impatient")
def test_downloads_that_stall_give_way() -> None:
    async def scenario() -> None:
        downloads = Downloads()
        async with stalling(downloads.stall, DOZEN):
            while not downloads.control._stuck:
                await asyncio.sleep(BRIEF)
            for _ in range(5):
                sizes = await asyncio.gather(*(downloads.read(caller, 6) for caller in FOUR))
                assert [len(each) for each in sizes] == [6] * 4
        assert downloads.ended
        assert set(downloads.ended) <= set(DOZEN)

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_downloads_of_callers_that_have_stalled_leave_half_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "PATIENCE_SECONDS", 3600.0)
    callers = [f"attacker-{number}" for number in range(40)]

    async def scenario() -> None:
        downloads = Downloads()
        for caller in callers:
            downloads.control.note_stall(caller)
        async with stalling(downloads.stall, callers):
            while sum(downloads.control._under_way[caller] for caller in callers) < 17:
                await asyncio.sleep(BRIEF)
            await asyncio.sleep(5 * BRIEF)
            assert sum(downloads.control._under_way[caller] for caller in callers) == (2 + 32) // 2
            assert downloads.control.slow_bytes >= PART_SIZE - SMALL_PART
            assert downloads.control.free >= 1
            sizes = await asyncio.gather(*(downloads.read(caller, 6) for caller in FOUR * 4))
            assert [len(each) for each in sizes] == [6] * 16
        assert downloads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.usefixtures("impatient")
def test_slow_downloads_go_on_while_there_is_room_for_others() -> None:
    async def scenario() -> None:
        downloads = Downloads()
        slow = [asyncio.create_task(downloads.read(f"slow-{number}", 1, 60 * BRIEF)) for number in range(30)]
        await asyncio.sleep(5 * BRIEF)
        while not all(task.done() for task in slow):
            assert [len(each) for each in await asyncio.gather(*(downloads.read(one, 6) for one in FOUR))] == [6] * 4
        assert [task.result() for task in slow] == [[SMALL_PART]] * 30
        assert downloads.ended == []

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


def test_a_download_that_stalled_gets_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "SLOW_SECONDS", 60.0)
    monkeypatch.setattr(flow_control, "TURN_SECONDS", 60.0)

    async def scenario() -> None:
        downloads = Downloads()
        assert await downloads.read("cam-1", 3) == [SMALL_PART, 2 * SMALL_PART, 4 * SMALL_PART]
        downloads.control.note_stall("cam-1")
        assert await downloads.read("cam-1", 3) == [SMALL_PART] * 3

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_a_caller_that_stalled_is_asked_for_small_parts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "GRACE_SECONDS", 0.1)

    async def size_after(pause: float, size: int) -> int:
        uploads = Uploads(FlowControl())
        await uploads.send("cam-1", [0.0, pause], size)
        assert uploads.control.part_size("cam-2") == PART_SIZE
        return uploads.control.part_size("cam-1")

    assert asyncio.run(size_after(0.0, 1)) == PART_SIZE
    assert asyncio.run(size_after(0.3, 1)) == SMALL_PART
    assert asyncio.run(size_after(0.3, PART_SIZE)) == PART_SIZE, "at megabytes a second"
    monkeypatch.setattr(flow_control, "PART_SECONDS", 0.3)
    assert asyncio.run(size_after(60.0, PART_SIZE)) == SMALL_PART
    monkeypatch.setattr(flow_control, "STALL_MEMORY_SECONDS", 0.0)
    assert asyncio.run(size_after(60.0, PART_SIZE)) == PART_SIZE


def test_callers_that_stalled_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "STALL_MEMORY_SECONDS", 0.0)

    async def scenario() -> int:
        control = FlowControl()
        for number in range(10):
            control.note_stall(f"cam-{number}")
        return len(control._stalled)

    assert asyncio.run(scenario()) == 1


def test_the_times_are_those_that_are_documented() -> None:
    docs = Path(__file__).parents[3] / "docs"
    relieved = flow_control.PATIENCE_SECONDS + flow_control.RELIEF_SECONDS
    assert f"within {relieved:.0f} s if others wait" in (docs / "security.md").read_text()
    assert "for ten minutes" in (docs / "decisions" / "0037-fair-shares.md").read_text()
    assert flow_control.STALL_MEMORY_SECONDS == 600


def test_a_caller_waits_no_longer_for_a_slot_because_it_waited_for_its_turn() -> None:
    """Neither its own first message nor the time without a slot counts as a stall."""

    async def scenario() -> None:
        control = FlowControl(slots=1, slow_bytes=0)
        uploads, held = Uploads(control), control.stream("cam-2")
        await held.next_part()
        sent = asyncio.create_task(uploads.send("cam-1", [0.3, 0.0], 1))
        await asyncio.sleep(0.6)
        held.release()
        assert await sent == 2
        assert control.part_size("cam-1") == PART_SIZE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_control, "GRACE_SECONDS", 0.2)
        asyncio.run(asyncio.wait_for(scenario(), 60.0))
