"""Local copies of an object store's blobs: fetched once, checked, and bounded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.blobs.object_store import ObjectBlobStore
from tests.support.blob_contents import CONTENT, REF, put

pytestmark = pytest.mark.slow


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


def test_copies_are_bounded_and_those_in_use_stay(bucket: str, tmp_path: Path) -> None:
    objects = ObjectClient(bucket)
    blobs = ObjectBlobStore(objects, tmp_path, copies_bytes=25_000)
    contents = [bytes([number]) * 10_000 for number in range(6)]
    for content in contents:
        put(blobs, content)
    copies = tmp_path / "copies"
    assert len(list(copies.iterdir())) == 6, "somebody may be reading any of them"
    blobs = ObjectBlobStore(objects, tmp_path, copies_bytes=25_000, copy_seconds=0.0)
    time.sleep(0.01)
    assert blobs.local(ref_of_bytes(contents[0])).read_bytes() == contents[0]
    assert {path.name for path in copies.iterdir()} == {ref_of_bytes(contents[n]).sha256 for n in (0, 5)}
    assert blobs.local(ref_of_bytes(contents[3])).read_bytes() == contents[3], "all are in the object store"
