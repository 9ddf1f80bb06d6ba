"""Streams a stored blob; both Fleet and Control offer it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from coordinator.storage.blob_store import BlobStore
from moonfed.errors import InvalidInput, NotFound
from moonfed.transport import PART_SIZE
from moonfed.v1 import blob_pb2


async def chunks(blobs: BlobStore, request: blob_pb2.FetchRequest) -> AsyncGenerator[blob_pb2.Chunk, None]:
    """The blob from the asked offset on. Its receiver checks the sha256, so it is not hashed here once more."""
    try:
        ref = await asyncio.to_thread(blobs.find, request.sha256)
    except NotFound as error:
        raise NotFound(f"{error}; global models that their run does not keep any more are deleted") from error
    if request.offset > ref.size:
        raise InvalidInput(f"offset is {request.offset}; blob {ref.sha256[:12]} has {ref.size} bytes")
    path = await asyncio.to_thread(blobs.local, ref)
    file = await asyncio.to_thread(path.open, "rb")
    try:
        file.seek(request.offset)
        while data := await asyncio.to_thread(file.read, PART_SIZE):
            yield blob_pb2.Chunk(data=data)
    finally:
        file.close()
