"""Streams a stored blob; both Fleet and Control offer it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from io import FileIO

from coordinator.background import in_thread
from coordinator.services.turns import Turns
from coordinator.storage.blob_store import BlobStore
from moonfed.errors import InvalidInput, NotFound
from moonfed.transport import PART_SIZE
from moonfed.v1 import blob_pb2

NOT_WAITING = getattr(os, "RWF_NOWAIT", 1 << 30)  # where there is none, reading so is refused


async def chunks(
    blobs: BlobStore, request: blob_pb2.FetchRequest, turns: Turns
) -> AsyncGenerator[blob_pb2.Chunk, None]:
    """The blob from the asked offset on. Its receiver checks the sha256, so it is not hashed here once more."""
    try:
        ref = await asyncio.to_thread(blobs.find, request.sha256)
    except NotFound as error:
        raise NotFound(f"{error}; global models that their run does not keep any more are deleted") from error
    if request.offset > ref.size:
        raise InvalidInput(f"offset is {request.offset}; blob {ref.sha256[:12]} has {ref.size} bytes")
    path = await asyncio.to_thread(blobs.local, ref)
    file = await asyncio.to_thread(path.open, "rb", buffering=0)
    offset, turn = request.offset, turns.new()
    try:
        while offset < ref.size:
            await turn.next()
            data = _at_hand(file, offset) or await in_thread(os.pread, file.fileno(), PART_SIZE, offset)
            if not data:  # the file has become shorter
                return
            yield blob_pb2.Chunk(data=data)
            offset += len(data)
    finally:
        turn.end()
        file.close()


def _at_hand(file: FileIO, offset: int) -> bytes:
    """The next bytes if they are in the system's cache; else none. Going to a thread takes longer than copying them."""
    buffer = bytearray(PART_SIZE)
    try:
        return bytes(memoryview(buffer)[: os.preadv(file.fileno(), [buffer], offset, NOT_WAITING)])
    except OSError:  # they are not, or this file system cannot tell
        return b""
