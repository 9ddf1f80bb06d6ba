"""Takes updates that wait at the same time together: few fsyncs and one transaction make all of them durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.spool import Spool

Outcome = bool | Exception  # True: it counts from now on; False: it did before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingUpdate:
    """An update whose files, by role, were checked and are durable where they lie."""

    report: DeviceReport
    checked: Mapping[str, Path]
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, problem: Exception | None) -> None:
        """It counts, or this is why it does not."""
        if self.done.done():  # who waited has gone
            return
        if problem:
            self.done.set_exception(problem)
        else:
            self.done.set_result(None)


class GroupCommit:
    """The updates of one run on their way from their checks to their receipts.

    `is_new` says whether an update has yet to be kept; it raises what is to be said of one that is not wanted. An
    asynchronous run takes one at a time: each may begin the next round, which may not want the others any more.
    """

    def __init__(
        self, reports: DeviceReports, spool: Spool, is_new: Callable[[DeviceReport], bool], *, late_reports: bool
    ) -> None:
        self._reports, self._spool, self._is_new, self._late_reports = reports, spool, is_new, late_reports
        self._waiting: list[PendingUpdate] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, arrival: PendingUpdate) -> None:
        """One more waits."""
        self._waiting.append(arrival)

    async def keep(self) -> list[PendingUpdate]:
        """Keeps those that wait and may come together; those that count from now on. The others of these have ended.

        Whoever calls this lets nothing else happen to the run meanwhile.
        """
        arrivals = self._next()
        taken = set(arrivals)
        self._waiting = [arrival for arrival in self._waiting if arrival not in taken]
        outcomes = await asyncio.to_thread(self._keep, arrivals) if arrivals else {}
        for arrival, outcome in outcomes.items():
            if outcome is not True:
                arrival.end(outcome or None)
        return [arrival for arrival, outcome in outcomes.items() if outcome is True]

    def _next(self) -> list[PendingUpdate]:
        """Of one device one at a time: the first stands."""
        if self._late_reports:
            return self._waiting[:1]
        batch: dict[tuple[AttemptId, str], PendingUpdate] = {}
        for arrival in self._waiting:
            batch.setdefault((arrival.report.id, arrival.report.device), arrival)
        return list(batch.values())

    def _keep(self, arrivals: Sequence[PendingUpdate]) -> dict[PendingUpdate, Outcome]:
        outcomes = {arrival: self._place(arrival) for arrival in arrivals}
        placed = [arrival for arrival, outcome in outcomes.items() if outcome is True]
        return {**outcomes, **self._record(placed)} if placed else outcomes

    def _place(self, arrival: PendingUpdate) -> Outcome:
        try:
            if not self._is_new(arrival.report):
                return False
            self._spool.put(arrival.report.id, arrival.report.device, arrival.checked)
        except Exception as problem:
            return problem
        return True

    def _record(self, placed: Sequence[PendingUpdate]) -> dict[PendingUpdate, Outcome]:
        reports = [arrival.report for arrival in placed]
        try:
            self._spool.sync((report.id, report.device) for report in reports)
            if self._late_reports:  # such an answer may come after its round has closed
                self._reports.replace(reports[0])
                return {}
            problems = self._reports.record_all(reports)
        except Exception as problem:  # none of these updates is known to be durable
            return dict.fromkeys(placed, problem)
        return {arrival: problem or True for arrival, problem in zip(placed, problems, strict=True)}
