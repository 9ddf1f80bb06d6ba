"""Files that are being received: resumable parts, and one sender at a time for each file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from moonfed.blobs import BlobRef, Incoming
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import InvalidInput, WrongState


class Transfer:
    """The files that one stream sends. Blocking work happens in threads."""

    def __init__(self, uploads: Transfers, files: Mapping[BlobRef, Path]) -> None:
        self._uploads, self._files = uploads, files
        self._incoming: dict[str, Incoming] = {}
        self._busy = asyncio.Lock()
        self._closed = False

    async def open(self) -> dict[str, int]:
        """Opens the files; bytes already held of each, by sha256."""
        async with self._busy:
            self._require_open()
            await in_thread(self._open)
        return {sha256: incoming.offset for sha256, incoming in self._incoming.items()}

    def _open(self) -> None:
        for ref, path in self._files.items():
            self._incoming[ref.sha256] = Incoming(path, ref)

    async def append(self, sha256: str, offset: int, data: bytes) -> None:
        """Adds the next bytes of one file."""
        async with self._busy:
            self._require_open()
            incoming = self._incoming.get(sha256)
            if incoming is None:
                raise InvalidInput(f"part is of blob {sha256[:12]!r}; it must be of a blob that is still to be sent")
            await in_thread(incoming.append, offset, data)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keeps newer uploads of these files waiting: what was checked inside is what is put to its place inside."""
        async with self._busy:
            self._require_open()
            yield

    def finish(self) -> dict[str, Path]:
        """Checks length and sha256 of every file and makes it durable. To be called while it is held. Blocking."""
        return {sha256: file.finish() for sha256, file in self._incoming.items()}

    async def close(self) -> None:
        """Keeps what was received for a later resume."""
        async with self._busy:
            if not self._closed:
                self._closed = True
                if not all(file.closed for file in self._incoming.values()):
                    await in_thread(self._close)
                self._uploads.forget(self)  # not earlier: until here it may still write

    def _close(self) -> None:
        for file in self._incoming.values():
            file.close()

    def _require_open(self) -> None:
        if self._closed:
            raise WrongState("a newer upload of the same blob has taken over; this one ends")


class Transfers:
    """The uploads under way, by the file that they write."""

    def __init__(self) -> None:
        self._by_file: dict[Path, Transfer] = {}

    async def begin(self, files: Mapping[BlobRef, Path]) -> tuple[Transfer, dict[str, int]]:
        """An upload, and the bytes already held of each of its blobs. Earlier uploads of its files end.

        A device whose connection broke comes back before the coordinator notices: the newer stream is the live one.
        Raises InvalidInput if one blob is announced with two sizes.
        """
        if len(set(files.values())) < len(files):
            raise InvalidInput("an upload announces one blob with two sizes")
        upload = Transfer(self, files)
        try:
            for path in files.values():
                while earlier := self._by_file.get(path):  # several may have waited for the same one
                    await earlier.close()
                self._by_file[path] = upload
            return upload, await upload.open()
        except BaseException:  # a caller that was cancelled will not close it
            await upload.close()
            raise

    async def drop(self, paths: Sequence[Path]) -> None:
        """Ends the uploads of these files and deletes what was received."""
        for path in paths:
            while upload := self._by_file.get(path):
                await upload.close()
            path.unlink(missing_ok=True)

    def forget(self, upload: Transfer) -> None:
        """The upload is over."""
        for path in [path for path, owner in self._by_file.items() if owner is upload]:
            del self._by_file[path]
