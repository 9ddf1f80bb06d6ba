"""Updates that wait together are taken together, and each comes to what it would have come to alone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moonfed.blobs import ref_of_bytes, ref_of_file
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.updates.group_commit import GroupCommit, PendingUpdate
from moonfed.errors import AlreadyExists, MoonfedError, WrongState

RUN = RunRecord(
    run="r",
    created=1.0,
    status="running",
    settings=RunSettings(rounds=1),
    manifest=ref_of_bytes(b"manifest"),
    method="fedavg",
    initial=ref_of_bytes(b"initial"),
)
FIRST = AttemptId(run="r", round=1, attempt=1)
DEVICES = [f"cam-{number}" for number in range(6)]
FULL = OSError(errno.ENOSPC, "no space left on device")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path / "state") as directory:
        directory.store.add_run(RUN)
        directory.store.open_round(FIRST, DEVICES)
        yield directory


def checked(state: Storage, name: str, content: bytes) -> Path:
    path = state.directory.root / f"{name}-{content.decode()}"
    path.write_bytes(content)
    return path


def arrival(state: Storage, device: str, content: bytes = b"one") -> PendingUpdate:
    report = DeviceReport(
        id=FIRST, device=device, outcome="accepted", samples=1, steps=1, blobs={"model": ref_of_bytes(content)}
    )
    return PendingUpdate(report=report, checked={"model": checked(state, device, content)})


def intake(state: Storage) -> GroupCommit:
    def is_new(report: DeviceReport) -> bool:
        return not state.store.reports.has_receipt(report.id, report.device, report.blobs)

    return GroupCommit(state.store.reports, state.spool, is_new, late_reports=False)


def outcome(arrived: PendingUpdate) -> BaseException | None:
    return arrived.done.exception() if arrived.done.done() else None


def place(state: Storage, device: str) -> Path:
    return state.spool.update_file(FIRST, device, "model")


def test_all_that_wait_are_taken_in_one_transaction(state: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    real = DeviceReports.record_all

    def counting(self: DeviceReports, given: Sequence[DeviceReport]) -> list[MoonfedError | None]:
        taken.append(len(given))
        return real(self, given)

    async def scenario() -> None:
        waiting = intake(state)
        arrivals = [arrival(state, device) for device in DEVICES]
        for arrived in arrivals:
            waiting.add(arrived)
        assert await waiting.keep() == arrivals, "in the order in which they came"
        assert not waiting
        assert await waiting.keep() == []

    monkeypatch.setattr(DeviceReports, "record_all", counting)
    asyncio.run(scenario())
    assert taken == [len(DEVICES)]
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES
    assert all(place(state, device).read_bytes() == b"one" for device in DEVICES)


def test_an_asynchronous_run_takes_one_at_a_time_and_looks_anew_before_the_next(state: Storage) -> None:
    wanted = set(DEVICES[:2])

    def is_new(report: DeviceReport) -> bool:
        if report.device not in wanted:
            raise WrongState("its round is too long ago")
        return True

    async def scenario() -> None:
        waiting = GroupCommit(state.store.reports, state.spool, is_new, late_reports=True)
        first, second = (arrival(state, device) for device in DEVICES[:2])
        waiting.add(first)
        waiting.add(second)
        assert await waiting.keep() == [first]
        wanted.clear()  # the first one closed the round
        assert waiting
        assert await waiting.keep() == []
        assert isinstance(outcome(second), WrongState)

    asyncio.run(scenario())
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES[:1]


def test_what_is_wrong_with_one_update_is_told_of_that_one_alone(state: Storage) -> None:
    async def scenario() -> None:
        waiting = intake(state)
        waiting.add(arrival(state, "cam-0"))
        await waiting.keep()
        known, different, gone, good, declined = (
            arrival(state, "cam-0"),
            arrival(state, "cam-0", b"two"),
            arrival(state, "cam-1"),
            arrival(state, "cam-2"),
            arrival(state, "cam-3"),
        )
        gone.checked["model"].unlink()
        state.store.reports.record(DeviceReport(id=FIRST, device="cam-3", outcome="declined", reason="busy"))
        for arrived in (known, gone, good, declined):
            waiting.add(arrived)
        assert await waiting.keep() == [good]
        assert known.done.done()
        assert outcome(known) is None
        assert isinstance(outcome(gone), FileNotFoundError)
        assert isinstance(outcome(declined), WrongState)
        waiting.add(different)
        assert await waiting.keep() == []
        assert isinstance(outcome(different), AlreadyExists)

    asyncio.run(scenario())
    assert place(state, "cam-0").read_bytes() == b"one", "the first stands"
    accepted = [report.device for report in state.store.reports.of_attempt(FIRST) if report.outcome == "accepted"]
    assert accepted == ["cam-0", "cam-2"]


@pytest.mark.parametrize(("place_", "name"), [(DeviceReports, "record_all"), (Spool, "sync")])
def test_where_the_transaction_fails_nobody_has_a_receipt_and_all_may_come_again(
    state: Storage, monkeypatch: pytest.MonkeyPatch, place_: type[object], name: str
) -> None:
    def fail(*_: object) -> None:
        raise FULL

    async def scenario() -> None:
        waiting = intake(state)
        arrivals = [arrival(state, device) for device in DEVICES]
        for arrived in arrivals:
            waiting.add(arrived)
        with monkeypatch.context() as full:
            full.setattr(place_, name, fail)
            assert await waiting.keep() == []
        assert [outcome(arrived) for arrived in arrivals] == [FULL] * len(DEVICES)
        assert state.store.reports.of_attempt(FIRST) == []
        again = [arrival(state, device) for device in DEVICES]
        for arrived in again:
            waiting.add(arrived)
        assert await waiting.keep() == again

    asyncio.run(scenario())
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES


def test_two_updates_of_one_device_are_not_taken_together_and_the_first_stands(state: Storage) -> None:
    async def scenario() -> None:
        waiting = intake(state)
        first, second, other = arrival(state, "cam-0"), arrival(state, "cam-0", b"two"), arrival(state, "cam-1")
        for arrived in (first, second, other):
            waiting.add(arrived)
        assert await waiting.keep() == [first, other]
        assert waiting, "the second one waits for the next time"
        assert await waiting.keep() == []
        assert isinstance(outcome(second), AlreadyExists)

    asyncio.run(scenario())
    standing = {report.device: report.blobs["model"] for report in state.store.reports.of_attempt(FIRST)}
    assert ref_of_file(place(state, "cam-0")) == standing["cam-0"] == ref_of_bytes(b"one")
