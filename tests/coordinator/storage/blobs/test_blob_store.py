"""The contract of blob stores: a directory, and an object store on a real S3 server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.blobs.object_store import ObjectBlobStore
from moonfed.errors import Corrupt, NotFound
from tests.support.blob_contents import CONTENT, REF, put

pytestmark = pytest.mark.slow

Open = Callable[[str], BlobStore]


@pytest.fixture(params=["directory", "s3"])
def open_blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open the same blobs repeatedly; `name` stands for the machine that opens them."""
    url: str = request.getfixturevalue("bucket") if request.param == "s3" else ""

    def open_(machine: str) -> BlobStore:
        if url:
            return ObjectBlobStore(ObjectClient(url), tmp_path / machine)
        return BlobDirectory(tmp_path / "blobs")

    return open_


@pytest.fixture
def blobs(open_blobs: Open) -> BlobStore:
    return open_blobs("a")


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
    """Change a stored byte behind the store's back, keeping the length."""
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
