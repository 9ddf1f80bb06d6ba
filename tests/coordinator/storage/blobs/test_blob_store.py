"""The contract of blob stores: a directory, and an object store on a real S3 server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs import BlobDirectory, BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs import object_store
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.blobs.object_store import ObjectBlobStore
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.errors import Corrupt, InvalidInput, NotFound, Unavailable
from tests.support.postgresql import Server

Open = Callable[[str], BlobStore]
CONTENT = bytes(range(256)) * 5000
REF = ref_of_bytes(CONTENT)
FIRST = AttemptId(run="digits", round=1, attempt=1)


@pytest.fixture(params=["directory", "s3"])
def open_blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same blobs repeatedly; a name represents the machine that does so."""
    url: str = request.getfixturevalue("bucket") if request.param == "s3" else ""

    def open_(machine: str) -> BlobStore:
        if url:
            return ObjectBlobStore(ObjectClient(url), tmp_path / machine)
        return BlobDirectory(tmp_path / "blobs")

    return open_


@pytest.fixture
def blobs(open_blobs: Open) -> BlobStore:
    return open_blobs("a")


def put(blobs: BlobStore, content: bytes) -> BlobRef:
    """As an upload arrives."""
    ref = ref_of_bytes(content)
    incoming = Incoming(blobs.incoming(ref), ref)
    incoming.append(0, content)
    blobs.put_file(incoming.finish(), ref)
    return ref


def test_a_blob_is_visible_to_everyone_who_opens_the_store(open_blobs: Open) -> None:
    first, second = open_blobs("a"), open_blobs("b")
    assert not first.has(REF)
    assert put(first, CONTENT) == REF
    for blobs in (first, second):
        assert blobs.has(REF)
        assert not blobs.has(BlobRef(REF.sha256, REF.size + 1))
        assert blobs.find(REF.sha256) == REF
        assert blobs.read(REF) == CONTENT
        assert blobs.local(REF).read_bytes() == CONTENT
        assert blobs.verified_path(REF).read_bytes() == CONTENT


def test_bytes_may_be_put_again(blobs: BlobStore) -> None:
    assert blobs.put_bytes(b"small") == blobs.put_bytes(b"small") == ref_of_bytes(b"small")
    put(blobs, b"small")
    assert blobs.read(ref_of_bytes(b"small")) == b"small"


@pytest.mark.parametrize("sha256", [REF.sha256, "", "../" * 20 + "etc/passwd", REF.sha256.upper()])
def test_a_missing_blob_is_not_found(blobs: BlobStore, sha256: str) -> None:
    with pytest.raises(NotFound, match="there is no blob"):
        blobs.find(sha256)


def test_a_deleted_run_leaves_no_trace(blobs: BlobStore) -> None:
    put(blobs, CONTENT)
    blobs.delete(REF.sha256)
    blobs.delete(REF.sha256)
    assert not blobs.has(REF)
    reads: list[Callable[[BlobRef], Any]] = [blobs.read, blobs.local, blobs.verified_path]
    for read in reads:
        with pytest.raises(NotFound, match="there is no blob"):
            read(REF)


def test_damaged_bytes_are_never_served(open_blobs: Open, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    put(open_blobs("a"), CONTENT)
    damage(open_blobs("a"), request)
    blobs = open_blobs("b")
    with pytest.raises(Corrupt, match="has another sha256"):
        blobs.read(REF)
    with pytest.raises(Corrupt, match="has another sha256"):
        blobs.verified_path(REF)


def damage(blobs: BlobStore, request: pytest.FixtureRequest) -> None:
    """Changes a stored byte behind the store's back, keeping its length."""
    changed = b"!" + CONTENT[1:]
    if isinstance(blobs, BlobDirectory):
        blobs.local(REF).write_bytes(changed)
    else:
        path = blobs.incoming(REF)
        path.write_bytes(changed)
        ObjectClient(request.getfixturevalue("bucket")).put(path, f"blobs/{REF.sha256[:2]}/{REF.sha256}")


def test_only_old_files_count_as_unused(blobs: BlobStore) -> None:
    put(blobs, CONTENT)
    begun = blobs.incoming(ref_of_bytes(b"begun"))
    begun.write_bytes(b"beg")
    assert list(blobs.unused_since(3600)) == []
    assert begun.exists()
    old = time.time() - 7200
    os.utime(begun, (old, old))
    assert list(blobs.unused_since(3600)) == []
    assert not begun.exists(), "an upload that was given up goes"
    time.sleep(1.1)  # an object store tells whole seconds
    assert list(blobs.unused_since(0)) == [REF]


# An object store's copies


def test_a_copy_is_fetched_once_for_concurrent_readers(bucket: str, tmp_path: Path) -> None:
    put(ObjectBlobStore(ObjectClient(bucket), tmp_path / "a"), CONTENT)
    fetched: list[str] = []

    class Counting(ObjectClient):
        def get(self, key: str, path: Path) -> None:
            fetched.append(key)
            super().get(key, path)

    objects = Counting(bucket)
    blobs = ObjectBlobStore(objects, tmp_path / "b")
    with ThreadPoolExecutor(8) as threads:
        paths = list(threads.map(lambda _: blobs.local(REF), range(32)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert len(fetched) == 1


def test_a_damaged_copy_is_fetched_once_more(bucket: str, tmp_path: Path) -> None:
    blobs = ObjectBlobStore(ObjectClient(bucket), tmp_path)
    put(blobs, CONTENT)
    blobs.local(REF).write_bytes(b"torn")
    assert blobs.verified_path(REF).read_bytes() == CONTENT
    blobs.local(REF).write_bytes(b"torn")
    after_a_power_loss = ObjectBlobStore(ObjectClient(bucket), tmp_path)
    assert after_a_power_loss.local(REF).read_bytes() == CONTENT


def test_copies_are_bounded_and_those_in_use_stay(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = ObjectBlobStore(ObjectClient(bucket), tmp_path, copies_bytes=25_000)
    contents = [bytes([number]) * 10_000 for number in range(6)]
    for content in contents:
        put(blobs, content)
    copies = tmp_path / "copies"
    assert len(list(copies.iterdir())) == 6, "somebody may be reading any of them"
    monkeypatch.setattr(object_store, "COPY_SECONDS", 0.0)
    time.sleep(0.01)
    assert blobs.local(ref_of_bytes(contents[0])).read_bytes() == contents[0]
    assert {path.name for path in copies.iterdir()} == {ref_of_bytes(contents[n]).sha256 for n in (0, 5)}
    assert blobs.local(ref_of_bytes(contents[3])).read_bytes() == contents[3], "all are in the object store"


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


def test_remnants_of_other_attempts_are_deleted_from_the_object_store(bucket: str, tmp_path: Path) -> None:
    spool, content = SharedSpool(ObjectClient(bucket)), tmp_path / "model"
    content.write_bytes(CONTENT)
    attempts = [
        AttemptId(run=run, round=round_, attempt=attempt)
        for run, round_, attempt in (("r", 1, 1), ("r", 1, 11), ("r", 2, 1), ("r-2", 1, 1))
    ]
    for attempt in attempts:
        spool.put(attempt, "cam-1", [content])
    spool.delete_except("r", attempts[:1])
    for attempt, kept in zip(attempts, (True, False, False, True), strict=True):
        if kept:
            spool.fetch(attempt, "cam-1", content, ref_of_bytes(CONTENT).sha256)
        else:
            with pytest.raises(NotFound):
                spool.fetch(attempt, "cam-1", content, ref_of_bytes(CONTENT).sha256)


def test_an_object_store_that_cannot_be_used_is_one_sentence(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("s3:bucket", "s3://key:secret@bucket", "nowhere://x"):
        with pytest.raises(InvalidInput, match="blobs is") as rejected:
            ObjectClient(url)
        assert "secret" not in str(rejected.value)
    for url in ("s3://no-such-bucket/fleet", bucket):
        if url == bucket:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises((Unavailable, NotFound)) as away:
            ObjectClient(url)
        assert "\n" not in str(away.value)
        assert url in str(away.value)


def test_a_missing_bucket_is_named(bucket: str) -> None:
    with pytest.raises(Unavailable, match=r"the object store s3://nowhere-\w+/fleet cannot be used: there is no such"):
        ObjectClient(bucket.replace("s3://", "s3://nowhere-"))
