"""Updates in an object store, for the coordinator that reduces their round."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.errors import NotFound
from tests.support.blob_contents import CONTENT

pytestmark = pytest.mark.slow


def test_remnants_of_other_attempts_are_deleted_from_the_object_store(bucket: str, tmp_path: Path) -> None:
    spool, content = SharedSpool(ObjectClient(bucket)), tmp_path / "model"
    content.write_bytes(CONTENT)
    attempts = [
        AttemptId(run=run, round=round_, attempt=attempt)
        for run, round_, attempt in (("r", 1, 1), ("r", 1, 11), ("r", 2, 1), ("r-2", 1, 1))
    ]
    for attempt in attempts:
        spool.put(attempt, "cam-1", {"model": content})
    spool.delete_except("r", attempts[:1])
    for attempt, kept in zip(attempts, (True, False, False, True), strict=True):
        if kept:
            spool.fetch(attempt, "cam-1", "model", content, ref_of_bytes(CONTENT).sha256)
        else:
            with pytest.raises(NotFound):
                spool.fetch(attempt, "cam-1", "model", content, ref_of_bytes(CONTENT).sha256)
