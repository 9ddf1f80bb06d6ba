"""An operator's connection: calls of the Control service, and transfers of blobs, with our errors and repetitions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.client.aio.channel import AsyncChannel
from moonfed.control.codec import from_message
from moonfed.errors import ResourceExhausted, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.client import CALL_SECONDS, Backoff
from moonfed.v1 import blob_pb2

ATTEMPTS = 3  # of a call that may be repeated, before the coordinator counts as unavailable
TRANSFERS = 8  # attempts at the transfer of a blob, each of which resumes

T = TypeVar("T")


class AsyncConnection(AsyncChannel):
    """A connection to a coordinator. A `kind` is a record, or the message itself."""

    async def ask(self, kind: type[T], method: str, request: Message, *, once: bool = False) -> T:
        """Make a call and return its reply; `once`: it must not be repeated."""

        async def attempt() -> T:
            return _read(kind, await getattr(self._control, method)(request, timeout=CALL_SECONDS))

        return await self._repeat(attempt, 1 if once else ATTEMPTS)

    async def ask_all(self, kind: type[T], method: str, request: Message) -> list[T]:
        """Make a call that streams its replies, and return all of them."""

        async def attempt() -> list[T]:
            return [found async for found in self.each(kind, method, request)]

        return await self._repeat(attempt, ATTEMPTS)

    async def each(
        self, kind: type[T], method: str, request: Message, timeout: float | None = CALL_SECONDS
    ) -> AsyncGenerator[T, None]:
        """Make a call once, and yield the replies that it streams."""
        call: Any = getattr(self._control, method)(request, timeout=timeout)
        try:
            async for message in call:
                yield _read(kind, message)
        except grpc.RpcError as error:
            raise await self._explained(error) from error
        finally:
            call.cancel()

    async def upload(self, files: Mapping[BlobRef, Path]) -> None:
        """Upload the blobs that the coordinator lacks, resuming after an interruption."""

        async def attempt() -> None:
            if problem := await self._send(files):
                raise problem

        await self._repeat(attempt, TRANSFERS)

    async def fetch(self, ref: BlobRef, most: int | None = None) -> bytes:
        """Return a verified blob, resuming after an interruption; ResourceExhausted for more than `most` bytes."""
        if most is not None and ref.size > most:
            raise ResourceExhausted(f"blob {ref.sha256[:12]} has {ref.size} bytes; it must be at most {most}")
        content = bytearray()

        async def attempt() -> None:
            request = blob_pb2.FetchRequest(sha256=ref.sha256, offset=len(content))
            async with aclosing(self.each(blob_pb2.Chunk, "Fetch", request, timeout=None)) as chunks:
                async for chunk in chunks:
                    content.extend(chunk.data)
                    if len(content) > ref.size:
                        return

        await self._repeat(attempt, TRANSFERS)
        return transport.verified(bytes(content), ref)

    async def fetch_file(self, ref: BlobRef, blobs: BlobDirectory) -> Path:
        """Return a blob's verified file in a directory, fetching what is missing of it."""
        if blobs.has(ref):
            return blobs.verified_path(ref)
        with blobs.receive(ref) as incoming:
            request = blob_pb2.FetchRequest(sha256=ref.sha256, offset=incoming.offset)
            async with aclosing(self.each(blob_pb2.Chunk, "Fetch", request, timeout=None)) as chunks:
                async for chunk in chunks:
                    incoming.append(incoming.offset, chunk.data)
            blobs.put_file(incoming.finish(), ref)
        return blobs.path(ref.sha256)

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], attempts: int) -> T:
        """Make several attempts while the coordinator is unavailable."""
        backoff = Backoff()
        while True:
            attempts -= 1
            try:
                return await attempt()
            except grpc.RpcError as error:
                problem = await self._explained(error)
                if attempts <= 0 or not isinstance(problem, Unavailable):
                    raise problem from error
            except Unavailable:
                if attempts <= 0:
                    raise
            await self.sleep(backoff.next())


def _read(kind: type[T], message: Message) -> T:
    return cast(T, message) if issubclass(kind, Message) else from_message(kind, message)
