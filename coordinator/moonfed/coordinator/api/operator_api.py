"""The calls of operators and evaluators, independent of the transport. The Control service calls this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from moonfed.blobs.store import BlobRef
from moonfed.control.devices import Device, DeviceActivity
from moonfed.control.evaluations import Evaluation
from moonfed.control.events import Ended, RunEvent, Snapshot
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.operators import AuditRecord, Operator
from moonfed.control.privacy import PrivacyReport
from moonfed.control.runs import Round, Run
from moonfed.coordinator.api.outcome_api import OutcomeApi
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.privacy.budget import report
from moonfed.coordinator.records import (
    EVERY_DEVICE,
    AttemptId,
    DeviceQuery,
)
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.sizes import states_needed
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.runs.evaluations import Evaluations, shown_evaluation
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.audit_trail import AuditFilter
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.garbage_collection import GarbageCollector
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.coordinator.updates.validation import check_metrics
from moonfed.errors import InvalidInput, NotFound

ROUNDS_AT_ONCE = 50  # read from the database at once when they are listed
ATTEMPTS_AT_ONCE = 2  # the same of one round, which rarely has more
AUDIT_RECORDS_AT_ONCE = 500
FOLLOW_SECONDS = 1.0  # between polls for new audit records, which other replicas write, too


class OperatorApi:
    """Runs, rounds, devices and bundles. Lives on one event loop."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: BlobStore,
        budget: DiskBudget,
        garbage_collector: GarbageCollector,
        runs: RunManager,
        evaluations: Evaluations,
        transfers: Transfers,
        sessions: Sessions,
        background: BackgroundTasks,
    ) -> None:
        self.blobs, self.outcomes = blobs, OutcomeApi(store)
        self._store = store
        self._budget = budget
        self._garbage_collector = garbage_collector
        self._runs = runs
        self._evaluations = evaluations
        self._transfers = transfers
        self._sessions = sessions
        self._background = background

    # Blobs

    async def upload(self, refs: Sequence[BlobRef]) -> tuple[Transfer, dict[str, int]]:
        """Start or resume an upload of blobs; also returns the bytes held of each, by sha256."""
        absent = {ref: self.blobs.incoming(ref) for ref in await in_thread(self._missing, refs)}
        await in_thread(self._budget.require, sum(ref.size for ref in absent))
        transfer, offsets = await self._transfers.begin(absent)
        return transfer, {ref.sha256: ref.size for ref in refs} | offsets

    def _missing(self, refs: Sequence[BlobRef]) -> list[BlobRef]:
        return [ref for ref in refs if not self.blobs.has(ref)]

    async def store(self, transfer: Transfer, refs: Sequence[BlobRef]) -> None:
        """Finish an upload: check the blobs, make them durable and available."""
        by_digest = {ref.sha256: ref for ref in refs}
        async with transfer.held():
            for sha256, path in (await in_thread(transfer.finish)).items():
                await in_thread(self.blobs.put_file, path, by_digest[sha256])

    # Runs

    async def start_run(self, new: NewRun) -> Run:
        """Start a run of a stored bundle, from its initial weights or from a stored model."""
        return await self._background.finish(self._runs.start(new))

    async def runs(self) -> list[Run]:
        """Return all runs, oldest first."""
        return [await self.run(record.run) for record in await asyncio.to_thread(self._store.runs)]

    async def run(self, run: str) -> Run:
        """Return one run; raises NotFound."""
        return await self._runs.view(run)

    async def privacy(self, run: str = "", delta: float = 0.0) -> PrivacyReport:
        """Return what runs have spent of differential privacy, together; only those of that name, if it is given.

        `delta`: at which they are composed; 0: the smallest of theirs. Raises NotFound if no run has, or had, the name.
        """
        if not 0 <= delta < 1:
            raise InvalidInput(field="delta", value=delta, allowed="above 0 and below 1")
        totals = await asyncio.to_thread(self._store.privacy.totals, run)
        if run and not totals:
            await asyncio.to_thread(self._store.run, run)
        records = await asyncio.to_thread(self._store.runs)
        without = [one.run for one in records if not one.settings.private and run in ("", one.run)]
        return report(totals, without, delta)

    async def rounds(self, run: str, newest: int = 0) -> AsyncGenerator[Round, None]:
        """Yield a run's committed and abandoned rounds, oldest first; only the `newest` of them unless that is 0."""
        await asyncio.to_thread(self._store.run, run)
        last: AttemptId | None = None
        if newest:
            last = await asyncio.to_thread(self._store.past_round_before, run, newest)
        while page := await asyncio.to_thread(self._store.shown_rounds, run, last, ROUNDS_AT_ONCE):
            for found in page:
                yield found
            last = AttemptId(run=run, round=page[-1].round, attempt=page[-1].attempt)

    async def attempts(self, run: str, number: int) -> AsyncGenerator[Round, None]:
        """Yield the committed and abandoned attempts at one round, oldest first."""
        await asyncio.to_thread(self._store.run, run)
        last = AttemptId(run=run, round=number, attempt=0)  # before the first
        while page := await asyncio.to_thread(self._store.shown_rounds, run, last, ATTEMPTS_AT_ONCE):
            for found in page:
                if found.round != number:
                    return
                yield found
            last = AttemptId(run=run, round=page[-1].round, attempt=page[-1].attempt)

    async def stop_run(self, run: str) -> Run:
        """End a run for good; its global models stay. A run that has ended stays as it is."""
        await self._background.finish(self._runs.stop(run))
        return await self.run(run)

    async def pause_run(self, run: str) -> Run:
        """Assign no more work of a run until it is resumed; work in progress is finished and counts."""
        await self._background.finish(self._runs.set_paused(run, paused=True))
        return await self.run(run)

    async def resume_run(self, run: str) -> Run:
        """Assign work of a paused run again."""
        await self._background.finish(self._runs.set_paused(run, paused=False))
        return await self.run(run)

    async def delete_run(self, run: str) -> int:
        """Delete a run that has ended, with its models and every blob that nothing else needs; returns bytes freed."""
        return await self._background.finish(self._runs.delete(run))

    async def prune_run(self, run: str, retention: Retention) -> tuple[int, int]:
        """Delete old global models that no running run needs; returns their number and the bytes freed."""
        record = await asyncio.to_thread(self._store.run, run)
        needed = states_needed(record.settings) if record.active else 1
        models, released = await in_thread(self._store.prune_run, run, retention, needed)
        return models, await in_thread(self._garbage_collector.collect, released)

    async def watch(self, run: str) -> AsyncGenerator[RunEvent, None]:
        """Yield a snapshot of a run, then its events until it has ended; raises WrongState if it is suspended."""
        if run in self._runs.suspended:
            yield Snapshot(run=await self.run(run))  # and then raise the reason
        served = await self._runs.find(run)
        if served is None:
            view = await self.run(run)
            yield Snapshot(run=view)
            yield Ended(run=view)
            return
        view, subscriber = await served.watch()
        try:
            yield Snapshot(run=view)
            async for event in subscriber.events():
                yield event
        finally:
            served.unwatch(subscriber)

    async def record_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Record metrics of a global model; number 0 is the one that the run started from."""
        check_metrics(metrics)
        await self._require_model(run, round_)
        await asyncio.to_thread(self._store.put_metrics, run, round_, metrics)
        if served := self._runs.served.get(run):
            served.publish_metrics(round_, metrics)

    # Evaluations

    async def record_score(self, run: str, round_: int, score: HeldOutScore) -> None:
        """Record an evaluator's results of a global model on a test set, and its metrics."""
        check_metrics(score.recorded)
        await self._require_model(run, round_)
        await asyncio.to_thread(self._store.evaluations.put_score, run, round_, score)
        if served := self._runs.served.get(run):
            served.publish_metrics(round_, score.recorded)

    async def evaluate_run(
        self, run: str, round_: int | None, seconds: float, *, again: bool = False, without_privacy: bool = False
    ) -> Evaluation:
        """Ask devices to score a global model, by default the newest; see `Evaluations.begin`."""
        committed = await self._require_model(run, round_ or 0)
        chosen = committed if round_ is None else round_
        begun = self._evaluations.begin(run, chosen, seconds, again=again, without_privacy=without_privacy)
        return shown_evaluation(await self._background.finish(begun))

    async def evaluations(self, run: str) -> list[Evaluation]:
        """Return a run's evaluations by round, those on test sets before the one on devices; raises NotFound."""
        await asyncio.to_thread(self._store.run, run)
        scores = await asyncio.to_thread(self._store.evaluations.scores, run)
        on_devices = await asyncio.to_thread(self._store.evaluations.of_run, run)
        found = [Evaluation(run=run, round=round_, score=score) for round_, score in scores]
        return sorted([*found, *map(shown_evaluation, on_devices)], key=lambda one: one.round)

    async def _require_model(self, run: str, round_: int) -> int:
        """Return the number of committed rounds; raise NotFound if the run never had this global model."""
        committed = (await self.run(run)).round
        if not 0 <= round_ <= committed:
            raise NotFound(
                f"run {run!r} has no global model {round_}; there are 0 to {committed}", field="run", value=run
            )
        return committed

    # Operators

    async def operators(self) -> list[Operator]:
        """Return all certificates of operators, by name."""
        return await asyncio.to_thread(self._store.operators.operators)

    async def audit_records(
        self, chosen: AuditFilter, newest: int = 0, *, follow: bool = False
    ) -> AsyncGenerator[AuditRecord, None]:
        """Yield the chosen audit records, or the `newest` of them, oldest first.

        With `follow`, then yield further ones forever, each when its call has ended.
        """
        trail, pending = self._store.audit, set[int]()
        last = await asyncio.to_thread(trail.before_newest, chosen, newest) if newest else 0
        while True:
            page = await asyncio.to_thread(trail.page, chosen, last, AUDIT_RECORDS_AT_ONCE, pending)
            for record in page:
                last = max(last, record.number)
                if follow and record.outcome == "pending":
                    pending.add(record.number)
                    continue
                pending.discard(record.number)
                yield record
            if len(page) < AUDIT_RECORDS_AT_ONCE:
                if not follow:
                    return
                await asyncio.sleep(FOLLOW_SECONDS)

    # Devices

    async def devices(self, query: DeviceQuery = EVERY_DEVICE) -> list[Device]:
        """Return the known devices that fulfil all conditions of the query, by name; raises NotFound for its run."""
        reasons = await self._ineligible(query.ineligible) if query.ineligible else {}
        known, activity = await asyncio.to_thread(self._store.devices.devices), self._activity()
        described = (
            self._described(device, activity.get(device.device, ()), reasons.get(device.device, "")) for device in known
        )
        return [device for device in described if query.matches(device)]

    async def _ineligible(self, run: str) -> dict[str, str]:
        """Return the devices that cannot take part in a run, with the reasons."""
        groups = (await self.run(run)).ineligible
        return {device: group.reason for group in groups for device in group.devices}

    def _described(self, device: Device, activity: Sequence[DeviceActivity], reason: str) -> Device:
        device = replace(with_presence(device, self._sessions), ineligible=reason)
        begun_first = sorted(activity, key=lambda one: -one.fraction)
        return replace(device, activity=tuple(begun_first)) if device.online else device

    def _activity(self) -> dict[str, list[DeviceActivity]]:
        """Return the assignments that devices work on in the open rounds of all runs."""
        found: dict[str, list[DeviceActivity]] = {}
        for run, served in self._runs.served.items():
            if current := served.state.open:
                for device, fraction in served.progress().items():
                    activity = DeviceActivity(run=run, round=current.round, attempt=current.attempt, fraction=fraction)
                    found.setdefault(device, []).append(activity)
        return found


def with_presence(device: Device, sessions: Sessions) -> Device:
    """Add to a device's record who shares its identity, whether it is online, and its own labels if it is."""
    session = sessions.find(device.device)
    device = replace(device, shared_by=sessions.identities.addresses(device.device))
    if session is None:
        return device
    return replace(device, online=True, labels={**session.info.labels, **device.operator_labels})
