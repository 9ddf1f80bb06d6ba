"""An update's path from its header to its receipt: admission, resumable transfer, checks, commit."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.records import MAX_REASON, AttemptId, DeviceReport
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.support.trace_contexts import sender_context
from moonfed.coordinator.updates.admission import Admission
from moonfed.coordinator.updates.codec import decode_update, decoded_bytes
from moonfed.coordinator.updates.late_updates import LateUpdates
from moonfed.coordinator.updates.local_files import link_files
from moonfed.coordinator.updates.receiving_run import ReceivingRun
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.coordinator.updates.validation import UpdateHeader, check_files, check_header
from moonfed.errors import InvalidInput, MoonfedError, ResourceExhausted, TooLate, WrongState
from moonfed.observability.spans import NO_SPAN, Span
from moonfed.observability.tracing import tracer

CHECKED_AT_ONCE = 4  # updates made durable and checked at the same time; leaves threads for everything else
Files = Mapping[str, Path]


class UpdateSession(Protocol):
    """One admitted update; the caller closes it.

    `offsets`: the bytes stored of each blob, by sha256; all of them if the update already has its receipt.
    """

    offsets: Mapping[str, int]

    async def write(self, sha256: str, offset: int, data: bytes) -> None:
        """Append a part to a blob; raises the rejection once the run has closed the update's round."""

    async def commit(self) -> DeviceReport:
        """Check and count the update, even if the caller is cancelled; returns its receipt."""

    async def close(self) -> None:
        """End the session; without a commit nothing counts, and the received bytes are kept for a resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admitted:
    header: UpdateHeader
    run: ReceivingRun
    admission: Admission


class Updates:
    """Receives the updates of all runs. Lives on one event loop.

    `find_run` returns the running run, or None for one that has ended.
    """

    def __init__(
        self,
        *,
        find_run: Callable[[str, AttemptId], Awaitable[ReceivingRun | None]],
        reports: DeviceReports,
        spool: Spool,
        blobs: BlobStore,
        budget: DiskBudget,
        transfers: Transfers,
        background: BackgroundTasks,
        late: LateUpdates,
        observer: Observer = SILENT,
    ) -> None:
        self._observer = observer
        self._find_run = find_run
        self._reports = reports
        self._spool = spool
        self._blobs = blobs
        self._budget = budget
        self._transfers = transfers
        self._background = background
        self._checking, self._late = asyncio.Semaphore(CHECKED_AT_ONCE), late

    async def admit(self, header: UpdateHeader, traceparent: str = "") -> UpdateSession:
        """Admit an update, whose session then receives its bytes. `traceparent`: the sender's span, if it traces.

        Raises AlreadyExists if another update of the device counts, WrongState or TooLate if the run does not count
        this one, InvalidInput or ResourceExhausted for a bad header.
        """
        try:
            return await self._open_session(header, traceparent)
        except Exception as error:
            self._observer.update_refused(error)
            raise

    async def _open_session(self, header: UpdateHeader, traceparent: str) -> UpdateSession:
        update, transfer = await self._admit(header), None
        if update is None:
            return _CountedUpdate(header)
        try:
            transfer, offsets = await self._open_transfer(header)
            # An earlier stream of the update, whose end we waited for, may have got the receipt.
            if not await self._is_counted(update):
                self._require(update)
                return _OpenUpdate(self, update, transfer, offsets, _receiving(update, traceparent))
        except BaseException:
            await self._abandon(update, transfer)
            raise
        await self._abandon(update, transfer)
        return _CountedUpdate(header)

    async def _abandon(self, update: _Admitted, transfer: Transfer | None) -> None:
        if transfer:
            await self._background.finish(transfer.close())
        update.admission.close()
        await self._delete_orphans(update)

    async def submit_files(self, header: UpdateHeader, files: Files) -> DeviceReport:
        """Count an update whose files, by role, are on this machine, after the same checks; returns its receipt.

        The files remain the caller's, who may delete them afterwards. Raises what `admit` and a commit raise.
        """
        update = await self._admit(header)
        return await self._background.finish(self._submit_files(update, files)) if update else _receipt(header)

    async def _submit_files(self, update: _Admitted, files: Files) -> DeviceReport:
        directory = await in_thread(self._spool.make_staging_directory, update.header.id)
        try:
            return await self._count(update, lambda: link_files(update.header, files, directory))
        finally:
            update.admission.close()
            await in_thread(shutil.rmtree, directory, ignore_errors=True)
            await self._delete_orphans(update)

    async def _delete_orphans(self, update: _Admitted) -> None:
        """Delete the spool of an attempt that is over: it was deleted, and we may have recreated it."""
        if not update.run.needs(update.header.id):
            await in_thread(self._spool.delete_local, update.header.id)

    async def _admit(self, header: UpdateHeader) -> _Admitted | None:
        """Admit an update to its run; None if it has its receipt already."""
        run = await self._find_run(header.id.run, header.id)
        if run is None:
            if await self._has_receipt(header):
                return None
            self._late.add(header.id, header.device)
            raise WrongState(f"run {header.id.run!r} has ended", field="run", value=header.id.run)
        update = _Admitted(header=header, run=run, admission=run.admit(header.id, header.device))
        try:
            if not await self._is_counted(update):
                self._require(update)
                await self._check_header(update)
                return update
        except BaseException:
            update.admission.close()
            raise
        update.admission.close()
        return None

    def _require(self, update: _Admitted) -> None:
        """Raise the rejection if the run has withdrawn its consent, and note an update that is too late."""
        try:
            update.admission.require()
        except TooLate:
            self._late.add(update.header.id, update.header.device)
            raise

    async def _is_counted(self, update: _Admitted) -> bool:
        return update.admission.may_have_receipt and await self._has_receipt(update.header)

    async def _has_receipt(self, header: UpdateHeader) -> bool:
        """Look up the receipt of this very update; raises AlreadyExists if another update of its device has one."""
        return await asyncio.to_thread(self._reports.has_receipt, header.id, header.device, header.blobs)

    async def _check_header(self, update: _Admitted) -> None:
        manifest, encodings = update.run.manifest, update.run.record.settings.encodings
        try:
            check_header(update.header, update.run.largest_files, encodings.up)
        except (InvalidInput, ResourceExhausted) as problem:
            await self._reject(update, problem)
            raise
        if self._budget.limited:  # beyond it the device tries again later: the update is not rejected
            size = sum(ref.size for ref in update.header.blobs.values()) + decoded_bytes(manifest, encodings)
            await self._require_budget(size)

    async def _require_budget(self, size: int) -> None:
        try:
            await in_thread(self._budget.require, size)
        except ResourceExhausted:
            self._observer.update_ended("refused", "disk_budget")
            raise

    async def _open_transfer(self, header: UpdateHeader) -> tuple[Transfer, dict[str, int]]:
        """Open the spooled files, ending the device's earlier streams; also return the bytes held, by sha256."""
        directory = self._spool.incoming_directory(header.id, header.device)
        files = {ref: directory / ref.sha256 for ref in header.blobs.values()}
        # One update at a time: a device cannot fill the disk with partial uploads.
        await self._transfers.drop_others(directory, files.values())
        return await self._transfers.begin(files)

    async def _count(self, update: _Admitted, receive: Callable[[], Files]) -> DeviceReport:
        """Check an update's files and count it; `receive` blocks until they are durable, and returns them by sha256."""
        try:
            async with self._checking:
                update.admission.require()
                received, decoded = await in_thread(self._check, update, receive)
            # The slot is free by now: a failing run may block here without delaying other runs' updates.
            receipt = _receipt(update.header, {role: ref for role, (ref, _) in decoded.items()})
            if (
                update.run.record.settings.private
            ):  # no noise covers what the device has sent in spite of its assignment
                receipt = replace(receipt, metrics={})
            replaced = {role: path for role, (_, path) in decoded.items()}
            await update.run.count(update.admission, receipt, {**received, **replaced})
        except _BadUpdate as bad:
            await self._reject(update, bad.problem)
            raise bad.problem from None
        except TooLate:
            self._late.add(update.header.id, update.header.device)
            raise
        except FileNotFoundError as error:  # the files were deleted with their round
            update.admission.require()
            raise WrongState(f"{update.header.id} has ended") from error
        self._observer.update_ended("accepted", "valid")
        if replaced:
            await in_thread(_delete, [received[role] for role in replaced])
        return receipt

    def _check(self, update: _Admitted, receive: Callable[[], Files]) -> tuple[Files, dict[str, tuple[BlobRef, Path]]]:
        """Receive the files by role, and decode those that an encoding replaces; raises _BadUpdate."""
        run, header = update.run, update.header
        by_sha256 = receive()
        files = {role: by_sha256[ref.sha256] for role, ref in header.blobs.items()}
        try:
            encodings, base_model = run.record.settings.encodings, run.base_model(header.id)
            decoded = decode_update(self._blobs, files, run.manifest, encodings, base_model)
            check_files({**files, **decoded}, run.manifest)
        except (InvalidInput, ResourceExhausted) as problem:
            raise _BadUpdate(problem) from problem
        return files, {role: (ref_of_file(path), path) for role, path in decoded.items()}

    async def _reject(self, update: _Admitted, problem: MoonfedError) -> None:
        """Record a rejected update as an event of its round."""
        self._observer.update_ended("rejected", "too_large" if isinstance(problem, ResourceExhausted) else "invalid")
        reason = str(problem)[:MAX_REASON]
        rejected = DeviceReport(id=update.header.id, device=update.header.device, outcome="rejected", reason=reason)
        await self._background.finish(update.run.reject(rejected))


class _CountedUpdate:
    """The session of an update that already has its receipt: nothing needs to be sent."""

    def __init__(self, header: UpdateHeader) -> None:
        self._header = header
        self.offsets: Mapping[str, int] = {ref.sha256: ref.size for ref in header.blobs.values()}

    async def write(self, sha256: str, offset: int, data: bytes) -> None:
        raise InvalidInput(f"blob {sha256[:12]} is already complete; send the commit")

    async def commit(self) -> DeviceReport:
        return _receipt(self._header)

    async def close(self) -> None:
        pass


class _OpenUpdate:
    """The session of an update that `updates` is receiving."""

    def __init__(
        self, updates: Updates, update: _Admitted, transfer: Transfer, offsets: Mapping[str, int], span: Span
    ) -> None:
        self._updates = updates
        self._update = update
        self._transfer = transfer
        self.offsets, self._span = offsets, span
        self._encoding = str(update.run.record.settings.encodings.up)

    async def write(self, sha256: str, offset: int, data: bytes) -> None:
        try:
            self._updates._require(self._update)
            self._update.admission.charge(len(data))
            await self._transfer.append(sha256, offset, data)
        except Exception as error:
            self._updates._observer.update_refused(error)
            raise
        self._updates._observer.received(self._encoding, len(data))

    async def commit(self) -> DeviceReport:
        return await self._updates._background.finish(self._commit())

    async def _commit(self) -> DeviceReport:
        try:
            async with self._transfer.held():
                receipt = await self._updates._count(self._update, self._transfer.finish)
                self._span.set(outcome="accepted")
                return receipt
        except Exception as error:
            self._span.fail(error.slug if isinstance(error, MoonfedError) else type(error).__name__)
            self._updates._observer.update_refused(error)
            if as_transient(error):  # an internal failure, after which the device sends everything again
                self._update.admission.refund()
            raise

    async def close(self) -> None:
        await self._updates._background.finish(self._close())

    async def _close(self) -> None:
        await self._transfer.close()  # waits for a commit under way, which needs the admission
        self._update.admission.close()
        # Its first part may have come just after the attempt was over.
        await self._updates._delete_orphans(self._update)
        self._span.end()


class _BadUpdate(Exception):
    """An update failed its checks with this problem."""

    def __init__(self, problem: MoonfedError) -> None:
        super().__init__(problem)
        self.problem = problem


def _receipt(header: UpdateHeader, decoded: Mapping[str, BlobRef] = MappingProxyType({})) -> DeviceReport:
    return DeviceReport(
        id=header.id,
        device=header.device,
        outcome="accepted",
        samples=header.samples,
        steps=header.steps,
        metrics=header.metrics,
        blobs=header.blobs,
        decoded=decoded,
        personal_lost=header.personal_lost,
    )


def _receiving(update: _Admitted, traceparent: str) -> Span:
    """Start the span of an update that is being received, within its device's upload."""
    if not tracer().on:
        return NO_SPAN
    header = update.header
    parent = sender_context(update.run.record, header.id, header.device, traceparent)
    size = sum(ref.size for ref in header.blobs.values())
    return tracer().start("receive update", parent=parent, attributes={"device": header.device, "bytes": size})


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
