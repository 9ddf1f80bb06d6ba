"""Streaming of a stored blob, for Fleet and Control."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from io import FileIO

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.rpc.flow_control import SMALL_PART, STREAM_SECONDS, StreamSlot
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import InvalidInput, NotFound, Unavailable
from moonfed.transport.client import PART_SIZE
from moonfed.v1 import blob_pb2

CHUNK_HEADER = 8  # bytes at most before the data of a serialized `Chunk`
_DATA_TAG = bytes([blob_pb2.Chunk.DATA_FIELD_NUMBER << 3 | 2])  # 2: the field has a length
NOT_WAITING = getattr(os, "RWF_NOWAIT", 1 << 30)  # elsewhere the kernel rejects such a read


class _Scratch(threading.local):
    """A buffer for the part that an event loop reads: a new one would be filled with zeros each time."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(CHUNK_HEADER + PART_SIZE))


_scratch = _Scratch()


async def chunks(
    blobs: BlobStore,
    request: blob_pb2.FetchRequest,
    slot: StreamSlot,
    require_access: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator[bytes, None]:
    """Yield the blob from the requested offset as serialized `Chunk`s, so that each part is in memory once.

    `require_access` raises NotFound for a blob that the caller may not have. The receiver checks the sha256, so it is
    not computed here again.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + STREAM_SECONDS
    opened = ExitStack()  # closes the file even if the call is cancelled while a thread opens it
    try:
        ref, file = await in_thread(_open, blobs, request, require_access, opened)
        offset = request.offset
        while offset < ref.size:
            size = _size(await slot.next_part(), offset, ref.size)
            if clock() > end:
                raise Unavailable("the download took too long; it resumes when it is requested again")
            cached = _read_cached(file, offset, size)
            chunk, read = cached if cached else await in_thread(_read, file, offset, size)
            if not read:  # the file was truncated
                return
            yield chunk
            offset += read
    finally:
        slot.release()
        opened.close()


def _open(
    blobs: BlobStore, request: blob_pb2.FetchRequest, require_access: Callable[[str], None], opened: ExitStack
) -> tuple[BlobRef, FileIO]:
    """Open the blob until `opened` closes; raises NotFound, or InvalidInput for an offset beyond its end. Blocking."""
    try:
        ref = blobs.find(request.sha256)
        require_access(ref.sha256)
    except NotFound as error:
        raise NotFound(f"{error}; if it was a global model, its run may have deleted it", field="blob") from error
    if request.offset > ref.size:
        raise InvalidInput(field="offset", value=request.offset, rest=f"; blob {ref.sha256[:12]} has {ref.size} bytes")
    return ref, opened.enter_context(blobs.local(ref).open("rb", buffering=0))


def _size(most: int, offset: int, end: int) -> int:
    """Return the size of the next part. If there are several, the last one is small, like the last of a turn."""
    left = end - offset
    if offset > 0 and SMALL_PART < left <= most:
        return left - SMALL_PART
    return min(most, left)


def _read_cached(file: FileIO, offset: int, size: int) -> tuple[bytes, int] | None:
    """Read the next chunk, and its size, if it is in the page cache: a thread would take longer."""
    buffer = _scratch.buffer
    try:
        read = os.preadv(file.fileno(), [buffer[CHUNK_HEADER : CHUNK_HEADER + size]], offset, NOT_WAITING)
    except OSError:  # not in the cache, or unknown to the file system
        return None
    return _serialized(buffer, read), read


def _read(file: FileIO, offset: int, size: int) -> tuple[bytes, int]:
    data = os.pread(file.fileno(), size, offset)
    return blob_pb2.Chunk(data=data).SerializeToString(), len(data)


def _serialized(buffer: memoryview, size: int) -> bytes:
    """Return the `Chunk` of the data that follows the header's place in a buffer; protobuf would copy it twice more."""
    header = _DATA_TAG + _varint(size) if size else b""
    start = CHUNK_HEADER - len(header)
    buffer[start:CHUNK_HEADER] = header
    return bytes(buffer[start : CHUNK_HEADER + size])


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
