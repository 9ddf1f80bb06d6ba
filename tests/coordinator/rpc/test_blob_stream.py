"""Streaming of stored blobs only."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import FlowControl
from moonfed.errors import InvalidInput, NotFound
from moonfed.transport.client import PART_SIZE
from moonfed.v1 import blob_pb2
from tests.coordinator.conftest import Fleet
from tests.support import coordinator
from tests.support.coordinator import ask


def test_only_blobs_can_be_fetched(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    run = fleet.start()
    device.connect().assignment()
    content = coordinator.make_bundle().contents["initial.safetensors"]

    def fetch(sha256: str, offset: int = 0) -> bytes:
        request = blob_pb2.FetchRequest(device="cam-1", sha256=sha256, offset=offset)
        return b"".join(
            ask(lambda r, timeout: [chunk.data for chunk in device.fleet.Fetch(r, timeout=timeout)], request)
        )

    assert fetch(run.model.sha256) == content
    assert fetch(run.model.sha256, 200) == content[200:]
    assert fetch(run.model.sha256, len(content)) == b""
    with pytest.raises(InvalidInput, match="offset is"):
        fetch(run.model.sha256, len(content) + 1)
    for name in ("", "0" * 64, "../coordinator.db", "../../state/authority/ca-key.pem"):
        with pytest.raises(NotFound):
            fetch(name)


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, PART_SIZE + 5])
def test_a_blob_of_any_size_arrives_as_chunks(size: int, tmp_path: Path) -> None:
    blobs, content = BlobDirectory(tmp_path), random.Random(size).randbytes(size)
    ref = blobs.put_bytes(content)

    async def fetched() -> list[bytes]:
        stream = chunks(blobs, blob_pb2.FetchRequest(sha256=ref.sha256), FlowControl().stream("cam-1"))
        return [part async for part in stream]

    found = [blob_pb2.Chunk.FromString(part) for part in asyncio.run(fetched())]
    assert b"".join(chunk.data for chunk in found) == content


def test_a_call_that_is_cancelled_while_the_file_is_being_opened_leaves_no_file_open(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path)
    ref = blobs.put_bytes(b"model")
    opening, may_open = threading.Event(), threading.Event()

    def require_access(sha256: str) -> None:
        opening.set()
        may_open.wait()

    async def cancel_while_opening() -> None:
        stream = chunks(blobs, blob_pb2.FetchRequest(sha256=ref.sha256), FlowControl().stream("cam-1"), require_access)
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.to_thread(opening.wait)
        reading.cancel()
        may_open.set()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert str(blobs.local(ref)) not in open_files()

    asyncio.run(cancel_while_opening())


def open_files() -> list[str]:
    return [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
