"""Streaming of stored blobs only."""

from __future__ import annotations

import pytest

from moonfed.errors import InvalidInput, NotFound
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
