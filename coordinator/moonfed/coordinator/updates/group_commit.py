"""Group commit: updates that wait at the same time become durable together, by few fsyncs and one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.updates.admission import Admission

Outcome = bool | Exception  # True: the update counts from now on; False: it did before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingUpdate:
    """A checked update, durable where its files are, that waits for its receipt."""

    admission: Admission
    receipt: DeviceReport
    files: Mapping[str, Path]  # by role
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, problem: Exception | None) -> None:
        """Report that the update counts, or why it does not."""
        if self.done.done():  # the waiting call was cancelled
            return
        if problem:
            self.done.set_exception(problem)
        else:
            self.done.set_result(None)


class GroupCommit:
    """The pending updates of one run.

    All of them are committed together, at most one for each device. With `late_reports`, whose rounds may have closed,
    they are committed one at a time: each may open the next round, which may no longer count the others.
    """

    def __init__(self, reports: DeviceReports, spool: Spool, *, late_reports: bool) -> None:
        self._reports = reports
        self._spool = spool
        self._late_reports = late_reports
        self._pending: list[PendingUpdate] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, update: PendingUpdate) -> None:
        """Queue an update for the next commit."""
        self._pending.append(update)

    async def commit(self) -> list[PendingUpdate]:
        """Commit the next batch; returns the updates that count from now on, and settles the rest of the batch.

        The caller prevents changes of the run meanwhile, so that its admissions stay valid.
        """
        batch = self._next_batch()
        self._pending = [update for update in self._pending if update not in batch]
        outcomes = await asyncio.to_thread(self._commit, batch) if batch else {}
        for update, outcome in outcomes.items():
            if outcome is not True:
                update.settle(outcome or None)
        return [update for update, outcome in outcomes.items() if outcome is True]

    def _next_batch(self) -> dict[PendingUpdate, None]:
        if self._late_reports:
            return dict.fromkeys(self._pending[:1])
        first: dict[tuple[AttemptId, str], PendingUpdate] = {}
        for update in self._pending:
            first.setdefault((update.receipt.id, update.receipt.device), update)
        return dict.fromkeys(first.values())

    def _commit(self, batch: Mapping[PendingUpdate, None]) -> dict[PendingUpdate, Outcome]:
        outcomes = {update: self._place(update) for update in batch}
        placed = [update for update, outcome in outcomes.items() if outcome is True]
        return {**outcomes, **self._record(placed)} if placed else outcomes

    def _place(self, update: PendingUpdate) -> Outcome:
        """Move the files into place, unless an update that has a receipt is there."""
        receipt, admission = update.receipt, update.admission
        try:
            if admission.may_have_receipt and self._reports.has_receipt(receipt.id, receipt.device, receipt.blobs):
                return False
            admission.require()
            self._spool.put(receipt.id, receipt.device, update.files)
        except Exception as problem:
            return problem
        return True

    def _record(self, placed: Sequence[PendingUpdate]) -> dict[PendingUpdate, Outcome]:
        receipts = [update.receipt for update in placed]
        try:
            self._spool.sync(receipt.id for receipt in receipts)
            if self._late_reports:  # such an update may count after its own round has closed
                self._reports.replace(receipts[0])
                return {}
            problems = self._reports.record_all(receipts)
        except Exception as problem:  # none of these updates is known to be durable
            return dict.fromkeys(placed, problem)
        return {update: problem or True for update, problem in zip(placed, problems, strict=True)}
