"""The calls of operators and evaluators, independent of the transport. The Control service calls this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from moonfed.blobs import BlobRef
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import AttemptId, DeviceRecord, RoundRecord, RunEvent, RunView
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.garbage_collection import GarbageCollector
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.coordinator.updates.validation import check_metrics
from moonfed.errors import NotFound

ROUNDS_AT_ONCE = 50  # read from the database at once when they are listed


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
        transfers: Transfers,
        sessions: Sessions,
        background: BackgroundTasks,
    ) -> None:
        self.blobs = blobs
        self._store, self._budget, self._garbage_collector, self._runs = store, budget, garbage_collector, runs
        self._transfers, self._sessions, self._background = transfers, sessions, background

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

    async def start_run(self, new: NewRun) -> RunView:
        """Start a run of a stored bundle, from its initial weights or from a stored model."""
        return await self._background.finish(self._runs.start(new))

    async def runs(self) -> list[RunView]:
        """Return all runs, oldest first."""
        return [await self.run(record.run) for record in await asyncio.to_thread(self._store.runs)]

    async def run(self, run: str) -> RunView:
        """Return one run; raises NotFound."""
        return await self._runs.view(run)

    async def rounds(self, run: str) -> AsyncGenerator[RoundRecord, None]:
        """Yield a run's committed and abandoned rounds, oldest first."""
        await asyncio.to_thread(self._store.run, run)
        last: AttemptId | None = None
        while page := await asyncio.to_thread(self._store.past_rounds, run, last, ROUNDS_AT_ONCE):
            for found in page:
                yield found
            last = page[-1].id

    async def stop_run(self, run: str) -> RunView:
        """End a run for good; its global models stay. A run that has ended stays as it is."""
        await self._background.finish(self._runs.stop(run))
        return await self.run(run)

    async def delete_run(self, run: str) -> int:
        """Delete a run that has ended, with its models and every blob that nothing else needs; returns bytes freed."""
        return await self._background.finish(self._runs.delete(run))

    async def prune_run(self, run: str, retention: Retention) -> tuple[int, int]:
        """Delete old global models that no running run needs; returns their number and the bytes freed."""
        record = await asyncio.to_thread(self._store.run, run)
        needed = record.settings.states_needed if record.status == "running" else 1
        models, released = await in_thread(self._store.prune_run, run, retention, needed)
        return models, await in_thread(self._garbage_collector.collect, released)

    async def watch(self, run: str) -> AsyncGenerator[RunEvent | RunView, None]:
        """Yield a snapshot of a run, then its events until it has ended; raises WrongState if it is suspended."""
        if run in self._runs.suspended:
            yield await self.run(run)  # and then raise the reason
        served = await self._runs.find(run)
        if served is None:
            view = await self.run(run)
            yield view
            yield RunEvent(kind="ended", run=view)
            return
        view, subscriber = await served.watch()
        try:
            yield view
            async for event in subscriber.events():
                yield event
        finally:
            served.unwatch(subscriber)

    async def record_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Record metrics of a global model; number 0 is the one that the run started from."""
        check_metrics(metrics)
        view = await self.run(run)
        if not 0 <= round_ <= view.committed:
            raise NotFound(f"run {run!r} has no global model {round_}; there are 0 to {view.committed}")
        await asyncio.to_thread(self._store.put_metrics, run, round_, metrics)
        if served := self._runs.served.get(run):
            served.publish_metrics(round_, metrics)

    # Devices

    async def devices(self) -> list[DeviceRecord]:
        """Return all known devices, by name."""
        return [self._with_presence(device) for device in await asyncio.to_thread(self._store.devices.devices)]

    def _with_presence(self, device: DeviceRecord) -> DeviceRecord:
        session = self._sessions.find(device.device)
        return replace(device, online=True, labels=session.info.labels) if session else device
