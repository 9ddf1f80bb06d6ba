"""One device hands in one update: resume, parts, commit; then the checks, the spool and the receipt."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar
from weakref import WeakKeyDictionary

from moonfed.blobs import BlobRef, ref_of_file
from moonfed.coordinator.records import MAX_REASON, DeviceReport
from moonfed.coordinator.runs.handle import RunHandle
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.codec import decode_update, decoded_bytes
from moonfed.coordinator.updates.local_files import link_files
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.coordinator.updates.transfer import Transfer, Transfers
from moonfed.coordinator.updates.validation import UpdateHeader, check_files, check_header, largest_files
from moonfed.errors import InvalidInput, MoonfedError, ResourceExhausted, WrongState

T = TypeVar("T")
CHECKED_AT_ONCE = 4  # updates made durable and checked at the same time: leaves threads to the others


class UpdateSession:
    """An update on its way. `offsets`: bytes already held, by sha256; all of them if it already has its receipt."""

    def __init__(self, desk: Updates, driver: RunHandle | None, header: UpdateHeader) -> None:
        self._desk, self._driver, self._header = desk, driver, header
        self._upload: Transfer | None = None
        self.offsets: Mapping[str, int] = {ref.sha256: ref.size for ref in header.blobs.values()}

    async def begin(self) -> None:
        """Opens the spooled files, unless the update has its receipt already."""
        if self._driver is None:
            return
        header, wanted = self._header, False
        try:
            self._upload, offsets = await self._receive()
            # A receipt may come from an earlier stream, whose end we waited for.
            if not await self._desk.has_receipt(self._driver, header):
                self._driver.require_wanted(header.id, header.device)
                self.offsets, wanted = offsets, True
        finally:
            if not wanted:
                await self.close()
                self._upload = None
                if self._driver.is_over(header.id):  # its spool was deleted, and we have just made it again
                    await asyncio.to_thread(self._desk.spool.delete_local, header.id)

    async def _receive(self) -> tuple[Transfer, dict[str, int]]:
        header, uploads = self._header, self._desk.uploads
        directory = self._desk.spool.incoming_directory(header.id, header.device)
        files = {ref: directory / ref.sha256 for ref in header.blobs.values()}
        # One at a time: a device cannot fill the disk with the beginnings of many updates.
        await uploads.drop([other for other in directory.glob("*") if other not in files.values()])
        return await uploads.begin(files)

    async def append(self, sha256: str, offset: int, data: bytes) -> None:
        """Adds the next bytes; WrongState as soon as the round has closed."""
        if not self._driver or not self._upload:
            raise InvalidInput(f"blob {sha256[:12]} is held already; send the commit")
        self._driver.require_wanted(self._header.id, self._header.device)
        self._desk.quota(self._driver).take(self._header.id, self._header.device, len(data))
        await self._upload.append(sha256, offset, data)

    async def commit(self) -> UpdateHeader:
        """Checks and counts the update; the header that the receipt is made from. Goes on if the caller goes away."""
        if self._driver and self._upload:
            await self._desk.background.finish(self._finish(self._driver, self._upload))
        return self._header

    async def close(self) -> None:
        """The stream is over; without a commit nothing counts, and what was sent can be resumed."""
        if self._upload:
            await self._desk.background.finish(self._upload.close())

    async def _finish(self, driver: RunHandle, upload: Transfer) -> None:
        try:
            async with upload.held():
                await self._desk.count(driver, self._header, upload.finish)
        except Exception as error:
            if as_transient(error):  # ours, for which the device sends everything again
                self._desk.quota(driver).forgive(self._header.id, self._header.device)
            raise


class Updates:
    """Receives the updates of all runs."""

    def __init__(self, storage: Storage, uploads: Transfers, background: BackgroundTasks) -> None:
        self.spool, self.uploads, self.background = storage.spool, uploads, background
        self._blobs, self._budget, self._reports = storage.blobs, storage.budget, storage.store.reports
        self.checking = asyncio.Semaphore(CHECKED_AT_ONCE)
        self._quotas: WeakKeyDictionary[RunHandle, ByteQuota] = WeakKeyDictionary()

    def quota(self, driver: RunHandle) -> ByteQuota:
        """Of the run's devices."""
        if driver not in self._quotas:
            allowed = largest_files(driver.manifest, driver.record.settings.encodings.up)
            self._quotas[driver] = ByteQuota(sum(allowed.values()))
        return self._quotas[driver]

    async def begin(self, driver: RunHandle | None, header: UpdateHeader) -> UpdateSession:
        """Starts, or goes on with, an update; `driver` is absent if the run has ended.

        Raises AlreadyExists if another update of this device stands, WrongState if the round does not want it.
        """
        submission = UpdateSession(self, await self._admitted(driver, header), header)
        await submission.begin()
        return submission

    async def take(self, driver: RunHandle | None, header: UpdateHeader, files: Mapping[str, Path]) -> None:
        """Counts an update whose files, by role, lie on this machine, after the very same checks."""
        if admitted := await self._admitted(driver, header):
            await self.background.finish(self._take(admitted, header, files))

    async def _take(self, driver: RunHandle, header: UpdateHeader, files: Mapping[str, Path]) -> None:
        directory = await in_thread(self.spool.make_staging_directory, header.id)
        try:
            await self.count(driver, header, lambda: link_files(header, files, directory))
        finally:
            await in_thread(shutil.rmtree, directory, ignore_errors=True)
            if driver.is_over(header.id):  # its spool was deleted, and we may have made it again
                await in_thread(self.spool.delete_local, header.id)

    async def _admitted(self, driver: RunHandle | None, header: UpdateHeader) -> RunHandle | None:
        """The driver that takes the update; None if the update has its receipt already."""
        if await self.has_receipt(driver, header):
            return None
        if driver is None:
            raise WrongState(f"run {header.id.run!r} has ended")
        driver.require_wanted(header.id, header.device)
        wanted = driver.record.settings.encodings.up
        problem = _outcome(lambda: check_header(header, driver.manifest, wanted))
        if isinstance(problem, MoonfedError):
            await _refuse(problem, driver, header)
        # No refusal of the update: the device tries again, perhaps when there is room.
        if self._budget.limited:
            received = sum(ref.size for ref in header.blobs.values())
            room = received + decoded_bytes(driver.manifest, driver.record.settings.encodings)
            await in_thread(self._budget.require, room)
        return driver

    async def count(self, driver: RunHandle, header: UpdateHeader, received: Callable[[], Mapping[str, Path]]) -> None:
        """Checks an update's files, by sha256, once they are received, and counts them. `received` may block."""
        try:
            async with self.checking:
                driver.require_wanted(header.id, header.device)
                files, decoded = await in_thread(self._checked, driver, header, received)
            # The slot is free again: a run in trouble may keep us waiting, and others must not wait for that.
            if isinstance(decoded, MoonfedError):
                await _refuse(decoded, driver, header)
            refs = await in_thread(_refs, decoded) if decoded else {}
            await driver.accept(_accepted(header, refs), {**files, **decoded})
            if decoded:
                await in_thread(_free, [files[role] for role in decoded])
        except FileNotFoundError as error:  # the files went with their round
            driver.require_wanted(header.id, header.device)
            raise WrongState(f"the round of {header.id} has ended") from error

    def _checked(
        self, driver: RunHandle, header: UpdateHeader, received: Callable[[], Mapping[str, Path]]
    ) -> tuple[dict[str, Path], dict[str, Path] | MoonfedError]:
        """The update's files by role, and what takes their place, or what is wrong with them."""
        found = received()
        files = {role: found[ref.sha256] for role, ref in header.blobs.items()}
        return files, _outcome(lambda: self._check(driver, header, files))

    def _check(self, driver: RunHandle, header: UpdateHeader, files: Mapping[str, Path]) -> dict[str, Path]:
        """The decoded files, by role, that take the place of received ones; raises what is wrong with the update."""
        encodings, begun_with = driver.record.settings.encodings, driver.begun_with(header.id)
        decoded = decode_update(self._blobs, files, driver.manifest, encodings, begun_with)
        check_files({**files, **decoded}, driver.manifest)
        return decoded

    async def has_receipt(self, driver: RunHandle | None, header: UpdateHeader) -> bool:
        """Whether this very update counts already; AlreadyExists if another one of its device does."""
        if driver and not driver.may_have_receipt(header.id, header.device):
            return False
        return await asyncio.to_thread(self._reports.has_receipt, header.id, header.device, header.blobs)


def _outcome(check: Callable[[], T]) -> T | MoonfedError:
    """What a check returns, or what it objects to."""
    try:
        return check()
    except (InvalidInput, ResourceExhausted) as error:
        return error


def _refs(files: Mapping[str, Path]) -> dict[str, BlobRef]:
    return {role: ref_of_file(path) for role, path in files.items()}


def _free(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


async def _refuse(problem: MoonfedError, driver: RunHandle, header: UpdateHeader) -> NoReturn:
    """What a check objects to is an event of the round as well as the caller's error."""
    refused = DeviceReport(id=header.id, device=header.device, outcome="refused", reason=str(problem)[:MAX_REASON])
    await driver.background.finish(driver.refuse(refused))
    raise problem


def _accepted(header: UpdateHeader, decoded: Mapping[str, BlobRef]) -> DeviceReport:
    return DeviceReport(
        id=header.id,
        device=header.device,
        outcome="accepted",
        samples=header.samples,
        steps=header.steps,
        metrics=header.metrics,
        blobs=header.blobs,
        decoded=decoded,
    )
