"""Transfers: files that are being received, in resumable parts, with one writer for each file."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from moonfed.blobs.store import BlobRef, Incoming
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import InvalidInput, WrongState


class Transfer:
    """The files that one stream writes. Blocking work runs in threads."""

    def __init__(self, transfers: Transfers, files: Mapping[BlobRef, Path]) -> None:
        self._transfers, self._files = transfers, files
        self._incoming: dict[BlobRef, Incoming] = {}
        self._busy = asyncio.Lock()
        self._closed = False

    async def open(self) -> dict[str, int]:
        """Open the files that exist, and later the others; returns the bytes held of each, by sha256."""
        async with self._busy:
            self._require_open()
            if any(path.exists() for path in self._files.values()):  # a thread takes longer than this check
                await in_thread(self._open)
        return {ref.sha256: self._incoming[ref].offset if ref in self._incoming else 0 for ref in self._files}

    def _open(self) -> None:
        for ref, path in self._files.items():
            if ref not in self._incoming:
                self._incoming[ref] = Incoming(path, ref)

    async def append(self, sha256: str, offset: int, data: bytes) -> None:
        """Append a part to one of the files."""
        async with self._busy:
            self._require_open()
            ref = next((ref for ref in self._files if ref.sha256 == sha256), None)
            if ref is None:
                raise InvalidInput(f"part is of blob {sha256[:12]!r}; it must be of one that is still incomplete")
            await in_thread(self._append, ref, offset, data)

    def _append(self, ref: BlobRef, offset: int, data: bytes) -> None:
        self._open()
        self._incoming[ref].append(offset, data)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Make newer transfers of these files wait, so that the checked files are the ones that are moved."""
        async with self._busy:
            self._require_open()
            yield

    def finish(self) -> dict[str, Path]:
        """Check every file's length and sha256 and make it durable; returns them by sha256. Blocking.

        The caller holds the transfer.
        """
        self._open()
        return {ref.sha256: incoming.finish() for ref, incoming in self._incoming.items()}

    async def close(self) -> None:
        """Close the files and keep the received bytes for a resume; harmless when repeated."""
        async with self._busy:
            if not self._closed:
                self._closed = True
                try:
                    if not all(incoming.closed for incoming in self._incoming.values()):
                        await in_thread(self._close)
                finally:  # even of a cancelled caller: `begin` and `drop_others` wait until the transfer is forgotten
                    self._transfers.discard(self, self._files.values())  # not earlier: until here it may still write

    def _close(self) -> None:
        for incoming in self._incoming.values():
            incoming.close()

    def _require_open(self) -> None:
        if self._closed:
            raise WrongState("a newer upload of the same blob has taken over; this one ends")


class Transfers:
    """The transfers under way, by the file that they write."""

    def __init__(self) -> None:
        self._by_file: dict[Path, Transfer] = {}
        self._files_in: defaultdict[Path, set[Path]] = defaultdict(set)  # keys of `_by_file`, by their directory

    async def begin(self, files: Mapping[BlobRef, Path]) -> tuple[Transfer, dict[str, int]]:
        """Begin a transfer, which ends earlier ones of its files; also returns the bytes held, by sha256.

        A device whose connection broke returns before the coordinator notices: the newer stream is the live one.
        Raises InvalidInput if one blob is announced with two sizes.
        """
        if len(set(files.values())) < len(files):
            raise InvalidInput("an upload announces one blob with two sizes")
        transfer = Transfer(self, files)
        try:
            for path in files.values():
                while earlier := self._by_file.get(path):  # several may have waited for the same one
                    await earlier.close()
                self._by_file[path] = transfer
                self._files_in[path.parent].add(path)
            return transfer, await transfer.open()
        except BaseException:  # a cancelled caller does not close it
            await transfer.close()
            raise

    async def drop_others(self, directory: Path, kept: Collection[Path]) -> None:
        """End the transfers into a directory and delete its files, except `kept`.

        A transfer has a file only from its first part on. Others may begin while one ends, so this repeats until none
        is left; the caller that then calls `begin` is the only one.
        """
        while others := {*directory.glob("*"), *self._files_in.get(directory, ())}.difference(kept):
            path = others.pop()
            if transfer := self._by_file.get(path):
                await transfer.close()
            path.unlink(missing_ok=True)

    def discard(self, transfer: Transfer, files: Collection[Path]) -> None:
        """Forget a transfer of these files that has closed; a newer one may have taken some over."""
        for path in [path for path in files if self._by_file.get(path) is transfer]:
            del self._by_file[path]
            self._files_in[path.parent].discard(path)
            if not self._files_in[path.parent]:
                del self._files_in[path.parent]
