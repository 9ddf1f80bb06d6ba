"""The spool of updates, which coordinators on one object store share."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.blobs import ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.errors import NotFound
from tests.support.blob_contents import CONTENT
from tests.support.postgresql import Server

FIRST = AttemptId(run="digits", round=1, attempt=1)


def test_an_update_that_one_coordinator_received_another_reduces(
    bucket: str, postgresql_server: Server, tmp_path: Path
) -> None:
    database = postgresql_server.new_database()
    with (
        open_storage(tmp_path / "a", database, bucket) as first,
        open_storage(tmp_path / "b", database, bucket) as second,
    ):
        checked = tmp_path / "checked"
        checked.write_bytes(CONTENT)
        first.spool.put(FIRST, "cam-1", {"model": checked})
        assert second.spool.holds(FIRST, "cam-1", "model", ref_of_bytes(CONTENT))
        assert second.spool.update_file(FIRST, "cam-1", "model").read_bytes() == CONTENT
        second.spool.delete(FIRST)
        with pytest.raises(NotFound):
            SharedSpool(ObjectClient(bucket)).fetch(FIRST, "cam-1", tmp_path / "model", ref_of_bytes(CONTENT).sha256)
