"""What operators and evaluators want of the coordinator. The Control service calls this, and nothing below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from moonfed.blobs import BlobRef
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import AttemptId, DeviceRecord, RoundRecord, RunEvent, RunView
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.coordinator.updates.validation import check_metrics
from moonfed.errors import NotFound

ROUNDS_AT_ONCE = 50  # read from the database while they are listed


class OperatorApi:
    """Runs, rounds, devices and bundles. Lives on one event loop."""

    def __init__(
        self,
        storage: Storage,
        runs: RunManager,
        uploads: Transfers,
        attendance: Sessions,
        background: BackgroundTasks,
    ) -> None:
        self.blobs, self._budget, self._garbage_collector = storage.blobs, storage.budget, storage.garbage_collector
        self._store, self._runs = storage.store, runs
        self._uploads, self._attendance, self._background = uploads, attendance, background

    # Blobs

    async def upload(self, refs: Sequence[BlobRef]) -> tuple[Transfer, dict[str, int]]:
        """Starts, or goes on with, storing blobs; bytes already held of each."""
        absent = {ref: self.blobs.incoming(ref) for ref in await in_thread(self._lacking, refs)}
        await in_thread(self._budget.require, sum(ref.size for ref in absent))
        upload, offsets = await self._uploads.begin(absent)
        return upload, {ref.sha256: ref.size for ref in refs} | offsets

    def _lacking(self, refs: Sequence[BlobRef]) -> list[BlobRef]:
        return [ref for ref in refs if not self.blobs.has(ref)]

    async def store(self, upload: Transfer, refs: Sequence[BlobRef]) -> None:
        """Ends an upload: the blobs are checked, durable and can be fetched."""
        by_digest = {ref.sha256: ref for ref in refs}
        async with upload.held():
            for sha256, path in (await in_thread(upload.finish)).items():
                await in_thread(self.blobs.put_file, path, by_digest[sha256])

    # Runs

    async def start_run(self, name: str, manifest: str, model: str, settings: RunSettings) -> RunView:
        """Starts a run from a stored bundle, from its initial weights or from a stored model."""
        return await self._background.finish(self._runs.start(name, manifest, model, settings))

    async def runs(self) -> list[RunView]:
        """All runs, oldest first."""
        return [await self.run(record.run) for record in await asyncio.to_thread(self._store.runs)]

    async def run(self, run: str) -> RunView:
        """One run."""
        return await self._runs.view(run)

    async def rounds(self, run: str) -> AsyncGenerator[RoundRecord, None]:
        """A run's committed and abandoned rounds, oldest first, a few at a time."""
        await asyncio.to_thread(self._store.run, run)
        last: AttemptId | None = None
        while page := await asyncio.to_thread(self._store.past_rounds, run, last, ROUNDS_AT_ONCE):
            for found in page:
                yield found
            last = page[-1].id

    async def stop_run(self, run: str) -> RunView:
        """Ends a run for good; its global models stay. A run that has ended stays as it is."""
        await self._background.finish(self._runs.stop(run))
        return await self.run(run)

    async def delete_run(self, run: str) -> int:
        """Forgets a run that has ended, with its models and all that nothing else refers to; bytes freed."""
        return await self._background.finish(self._runs.delete(run))

    async def prune_run(self, run: str, retention: Retention) -> tuple[int, int]:
        """Deletes old global models of a run: how many, and bytes freed. What a running run needs stays."""
        record = await asyncio.to_thread(self._store.run, run)
        needed = record.settings.states_needed if record.status == "running" else 1
        models, released = await in_thread(self._store.prune_run, run, retention, needed)
        return models, await in_thread(self._garbage_collector.collect, released)

    async def watch(self, run: str) -> AsyncGenerator[RunEvent | RunView, None]:
        """A snapshot of the run, then what happens to it until it has ended; WrongState if it is suspended."""
        if run in self._runs.suspended:
            yield await self.run(run)  # and then why there is no more to be seen
        served = await self._runs.find(run)
        if served is None:
            view = await self.run(run)
            yield view
            yield RunEvent(kind="ended", run=view)
            return
        view, watcher = await served.watch()
        try:
            yield view
            async for event in watcher.events():
                yield event
        finally:
            served.unwatch(watcher)

    async def record_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Keeps metrics of one global model; 0 stands for the weights that the run started from."""
        check_metrics(metrics)
        view = await self.run(run)
        if not 0 <= round_ <= view.committed:
            raise NotFound(f"run {run!r} has no global model {round_}; there are 0 to {view.committed}")
        await asyncio.to_thread(self._store.put_metrics, run, round_, metrics)
        if served := self._runs.served.get(run):
            served.measured(round_, metrics)

    # Devices

    async def devices(self) -> list[DeviceRecord]:
        """All known devices, in order of their names."""
        return [self._seen(device) for device in await asyncio.to_thread(self._store.devices.devices)]

    def _seen(self, device: DeviceRecord) -> DeviceRecord:
        session = self._attendance.find(device.device)
        return replace(device, attending=True, labels=session.introduction.labels) if session else device
