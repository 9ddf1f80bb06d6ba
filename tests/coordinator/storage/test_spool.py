"""The spool of updates, which coordinators on one object store share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage import spool as spool_module
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.coordinator.storage.spool import Spool
from moonfed.errors import NotFound
from tests.support.blob_contents import CONTENT
from tests.support.postgresql import Server

pytestmark = pytest.mark.slow

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
            SharedSpool(ObjectClient(bucket)).fetch(
                FIRST, "cam-1", "model", tmp_path / "model", ref_of_bytes(CONTENT).sha256
            )


def checked(directory: Path, name: str, content: bytes) -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_update_is_moved_into_place_and_replaces_one_without_a_receipt(tmp_path: Path) -> None:
    spool, root = Spool(tmp_path / "spool"), tmp_path / "spool"
    for content in (b"first", b"second"):
        spool.put(FIRST, "cam-1", {"model": checked(tmp_path, "checked", content)})
        assert not (tmp_path / "checked").exists()
    spool.sync([FIRST])
    assert files(root) == {"digits/1-1/updates/model/cam-1": b"second"}
    assert spool.holds(FIRST, "cam-1", "model", ref_of_bytes(b"second"))
    assert not spool.holds(FIRST, "cam-1", "model", ref_of_bytes(b"first"))
    with pytest.raises(FileNotFoundError):
        spool.holds(FIRST, "cam-2", "model", ref_of_bytes(b"second"))


def test_the_directories_above_an_attempt_are_synced_once_and_again_after_its_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(spool_module, "sync_directory", lambda path: synced.append(str(path.relative_to(tmp_path))))
    spool = Spool(tmp_path / "spool")
    above = ["spool/digits/1-1/updates", "spool/digits/1-1", "spool/digits", "spool", "."]
    delete: dict[str, Callable[[], None]] = {
        "attempt": lambda: spool.delete_local(FIRST),
        "run": lambda: spool.delete_run("digits"),
        "all": lambda: spool.delete_local_except([]),
    }
    for deletion in delete.values():
        for device in ("cam-1", "cam-2"):
            spool.put(FIRST, device, {"model": checked(tmp_path, "checked", b"update")})
            spool.sync([FIRST, FIRST])
        assert synced == ["spool/digits/1-1/updates/model", *above, "spool/digits/1-1/updates/model"]
        synced.clear()
        deletion()


def test_two_roles_may_hold_the_same_bytes(tmp_path: Path) -> None:
    spool, same = Spool(tmp_path / "spool"), checked(tmp_path, "checked", b"same")
    spool.put(FIRST, "cam-1", {"model": same, "variate_change": same})
    assert set(files(tmp_path / "spool").values()) == {b"same"}
    assert len(files(tmp_path / "spool")) == 2


def test_remnants_of_a_killed_coordinator_are_deleted_except_for_open_attempts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    attempts = [FIRST, replace(FIRST, attempt=2), replace(FIRST, run="digits-2")]
    for attempt in attempts:
        spool.put(attempt, "cam-1", {"model": checked(tmp_path, "checked", b"update")})
    spool.put(FIRST, "cam-2", {"model": checked(tmp_path, "checked", b"update")})
    spool.delete_local_except(attempts[:1])
    assert sorted(files(tmp_path / "spool")) == [f"digits/1-1/updates/model/cam-{number}" for number in (1, 2)]
    spool.delete_update(FIRST, "cam-1")
    assert sorted(files(tmp_path / "spool")) == ["digits/1-1/updates/model/cam-2"]
    for _ in range(2):
        spool.delete(FIRST)
    assert files(tmp_path / "spool") == {}


def test_a_staging_directory_is_new_each_time_and_ends_with_its_attempt(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    first, second = spool.make_staging_directory(FIRST), spool.make_staging_directory(FIRST)
    assert first != second
    assert first.parent == second.parent == spool.attempt_directory(FIRST)
    spool.delete_run("digits")
    assert not first.exists()
