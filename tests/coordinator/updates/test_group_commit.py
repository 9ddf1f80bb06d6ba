"""Updates that wait together are committed together, each with the same result as alone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes, ref_of_file
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.updates.admission import Admissions
from moonfed.coordinator.updates.group_commit import GroupCommit, PendingUpdate
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.errors import AlreadyExists, MoonfedError, WrongState

RUN = RunRecord(
    run="r",
    created=1.0,
    status="running",
    settings=RunSettings(rounds=1),
    manifest=ref_of_bytes(b"manifest"),
    signature=ref_of_bytes(b"signature"),
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


def open_admissions() -> Admissions:
    return Admissions(lambda attempt, device: None, ByteQuota(1000))


def pending(
    state: Storage, device: str, content: bytes = b"one", admissions: Admissions | None = None
) -> PendingUpdate:
    receipt = DeviceReport(
        id=FIRST, device=device, outcome="accepted", samples=1, steps=1, blobs={"model": ref_of_bytes(content)}
    )
    admission = (admissions or open_admissions()).admit(FIRST, device, may_have_receipt=True)
    return PendingUpdate(admission=admission, receipt=receipt, files={"model": checked(state, device, content)})


def group_commit(state: Storage, *, late_reports: bool = False) -> GroupCommit:
    return GroupCommit(state.store.reports, state.spool, late_reports=late_reports)


def outcome(update: PendingUpdate) -> BaseException | None:
    return update.done.exception() if update.done.done() else None


def place(state: Storage, device: str) -> Path:
    return state.spool.update_file(FIRST, device, "model")


def test_all_pending_updates_are_committed_in_one_transaction(state: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    real = DeviceReports.record_all

    def counting(self: DeviceReports, given: Sequence[DeviceReport]) -> list[MoonfedError | None]:
        taken.append(len(given))
        return real(self, given)

    async def scenario() -> None:
        waiting = group_commit(state)
        updates = [pending(state, device) for device in DEVICES]
        for update in updates:
            waiting.add(update)
        assert await waiting.commit() == updates, "in the order in which they came"
        assert not waiting
        assert await waiting.commit() == []

    monkeypatch.setattr(DeviceReports, "record_all", counting)
    asyncio.run(scenario())
    assert taken == [len(DEVICES)]
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES
    assert all(place(state, device).read_bytes() == b"one" for device in DEVICES)


def test_an_asynchronous_run_commits_one_update_at_a_time_and_rechecks_before_the_next(state: Storage) -> None:
    wanted = set(DEVICES[:2])

    def reject(attempt: AttemptId, device: str) -> WrongState | None:
        return None if device in wanted else WrongState("its round is too long ago")

    async def scenario() -> None:
        waiting, admissions = group_commit(state, late_reports=True), Admissions(reject, ByteQuota(1000))
        first, second = (pending(state, device, admissions=admissions) for device in DEVICES[:2])
        waiting.add(first)
        waiting.add(second)
        assert await waiting.commit() == [first]
        wanted.clear()  # the first one closed the round
        admissions.review()
        assert waiting
        assert await waiting.commit() == []
        assert isinstance(outcome(second), WrongState)

    asyncio.run(scenario())
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES[:1]


def test_an_error_of_one_update_is_reported_for_that_one_only(state: Storage) -> None:
    async def scenario() -> None:
        waiting = group_commit(state)
        waiting.add(pending(state, "cam-0"))
        await waiting.commit()
        known, different, gone, good, declined = (
            pending(state, "cam-0"),
            pending(state, "cam-0", b"two"),
            pending(state, "cam-1"),
            pending(state, "cam-2"),
            pending(state, "cam-3"),
        )
        gone.files["model"].unlink()
        state.store.reports.record(DeviceReport(id=FIRST, device="cam-3", outcome="declined", reason="busy"))
        for update in (known, gone, good, declined):
            waiting.add(update)
        assert await waiting.commit() == [good]
        assert known.done.done()
        assert outcome(known) is None
        assert isinstance(outcome(gone), FileNotFoundError)
        assert isinstance(outcome(declined), WrongState)
        waiting.add(different)
        assert await waiting.commit() == []
        assert isinstance(outcome(different), AlreadyExists)

    asyncio.run(scenario())
    assert place(state, "cam-0").read_bytes() == b"one", "the first stands"
    accepted = [report.device for report in state.store.reports.of_attempt(FIRST) if report.outcome == "accepted"]
    assert accepted == ["cam-0", "cam-2"]


@pytest.mark.parametrize(("place_", "name"), [(DeviceReports, "record_all"), (Spool, "sync")])
def test_a_failed_transaction_issues_no_receipt_and_all_updates_may_be_sent_again(
    state: Storage, monkeypatch: pytest.MonkeyPatch, place_: type[object], name: str
) -> None:
    def fail(*_: object) -> None:
        raise FULL

    async def scenario() -> None:
        waiting = group_commit(state)
        updates = [pending(state, device) for device in DEVICES]
        for update in updates:
            waiting.add(update)
        with monkeypatch.context() as full:
            full.setattr(place_, name, fail)
            assert await waiting.commit() == []
        assert [outcome(update) for update in updates] == [FULL] * len(DEVICES)
        assert state.store.reports.of_attempt(FIRST) == []
        again = [pending(state, device) for device in DEVICES]
        for update in again:
            waiting.add(update)
        assert await waiting.commit() == again

    asyncio.run(scenario())
    assert [report.device for report in state.store.reports.of_attempt(FIRST)] == DEVICES


def test_two_updates_of_one_device_are_not_committed_together_and_the_first_counts(state: Storage) -> None:
    async def scenario() -> None:
        waiting = group_commit(state)
        first, second, other = pending(state, "cam-0"), pending(state, "cam-0", b"two"), pending(state, "cam-1")
        for update in (first, second, other):
            waiting.add(update)
        assert await waiting.commit() == [first, other]
        assert waiting, "the second one waits for the next time"
        assert await waiting.commit() == []
        assert isinstance(outcome(second), AlreadyExists)

    asyncio.run(scenario())
    standing = {report.device: report.blobs["model"] for report in state.store.reports.of_attempt(FIRST)}
    assert ref_of_file(place(state, "cam-0")) == standing["cam-0"] == ref_of_bytes(b"one")
