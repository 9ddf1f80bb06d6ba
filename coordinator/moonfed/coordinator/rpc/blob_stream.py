"""Streams a stored blob; both Fleet and Control offer it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from io import FileIO

from moonfed.blobs import BlobRef
from moonfed.coordinator.rpc.flow_control import SMALL_PART, Turns, Waiting
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import InvalidInput, NotFound
from moonfed.v1 import blob_pb2

NOT_WAITING = getattr(os, "RWF_NOWAIT", 1 << 30)  # where there is none, reading so is refused


async def chunks(
    blobs: BlobStore, request: blob_pb2.FetchRequest, turns: Turns, waiting: Waiting = nullcontext
) -> AsyncGenerator[bytes, None]:
    """The blob from the asked offset on, as serialized `Chunk`s: what is large is not kept twice while it is sent.

    Its receiver checks the sha256, so it is not hashed here once more.
    """
    ref, file = await in_thread(_opened, blobs, request)
    offset, turn = request.offset, turns.new(SMALL_PART, waiting)
    try:
        while offset < ref.size:
            size = _size(await turn.next(), offset, ref.size)
            at_hand = _at_hand(file, offset, size)
            chunk, read = at_hand if at_hand else await in_thread(_read, file, offset, size)
            if not read:  # the file has become shorter
                return
            yield chunk
            offset += read
    finally:
        turn.end()
        file.close()


def _opened(blobs: BlobStore, request: blob_pb2.FetchRequest) -> tuple[BlobRef, FileIO]:
    """The blob and its file; NotFound, or InvalidInput for an offset behind its end. Blocking."""
    try:
        ref = blobs.find(request.sha256)
    except NotFound as error:
        raise NotFound(f"{error}; global models that their run does not keep any more are deleted") from error
    if request.offset > ref.size:
        raise InvalidInput(f"offset is {request.offset}; blob {ref.sha256[:12]} has {ref.size} bytes")
    return ref, blobs.local(ref).open("rb", buffering=0)


def _size(most: int, offset: int, end: int) -> int:
    """Bytes of the next part. Where there were others, the last one is small, as the last of a turn is."""
    left = end - offset
    if offset > 0 and SMALL_PART < left <= most:
        return left - SMALL_PART
    return min(most, left)


def _at_hand(file: FileIO, offset: int, size: int) -> tuple[bytes, int] | None:
    """The next chunk, and of how many bytes, if they are in the system's cache: to go to a thread would take longer."""
    buffer = bytearray(size)
    try:
        read = os.preadv(file.fileno(), [buffer], offset, NOT_WAITING)
    except OSError:  # they are not, or this file system cannot tell
        return None
    return blob_pb2.Chunk(data=bytes(memoryview(buffer)[:read])).SerializeToString(), read


def _read(file: FileIO, offset: int, size: int) -> tuple[bytes, int]:
    data = os.pread(file.fileno(), size, offset)
    return blob_pb2.Chunk(data=data).SerializeToString(), len(data)
