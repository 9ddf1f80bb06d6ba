"""Blobs match their names, are complete or absent, and resume."""

import hashlib
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes, ref_of_file
from moonfed.errors import Corrupt, InvalidInput, NotFound, ResourceExhausted

CONTENT = bytes(range(256)) * 17
REF = BlobRef(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def blobs(tmp_path: Path) -> BlobDirectory:
    return BlobDirectory(tmp_path / "blobs")


def test_a_stored_blob_is_read_back_under_its_sha256(blobs: BlobDirectory) -> None:
    assert not blobs.has(REF)
    assert blobs.put_bytes(CONTENT) == blobs.put_bytes(CONTENT) == REF
    assert blobs.has(REF)
    assert blobs.find(REF.sha256) == REF
    assert blobs.read(REF) == CONTENT
    assert ref_of_file(blobs.verified_path(REF)) == ref_of_bytes(CONTENT)


def test_damage_on_the_disk_is_noticed(blobs: BlobDirectory) -> None:
    blobs.put_bytes(CONTENT)
    damaged = bytearray(CONTENT)
    damaged[100] ^= 1
    blobs.path(REF.sha256).write_bytes(damaged)
    with pytest.raises(Corrupt):
        blobs.read(REF)
    with pytest.raises(Corrupt):
        blobs.verified_path(REF)


def receive(blobs: BlobDirectory, *pieces: bytes) -> int:
    """Append pieces to a blob and leave it unfinished; return the number of stored bytes."""
    with blobs.receive(REF) as incoming:
        for piece in pieces:
            incoming.append(incoming.offset, piece)
        return incoming.offset


def test_receiving_resumes_where_it_broke_off(blobs: BlobDirectory) -> None:
    assert receive(blobs, CONTENT[:1000]) == 1000
    with blobs.receive(REF) as incoming:
        assert incoming.offset == 1000
        incoming.append(1000, CONTENT[1000:])
        blobs.put_file(incoming.finish(), REF)
    assert blobs.read(REF) == CONTENT


def test_a_part_that_does_not_follow_is_rejected(blobs: BlobDirectory) -> None:
    with blobs.receive(REF) as incoming, pytest.raises(InvalidInput, match="starts at 5; 0 was expected"):
        incoming.append(5, b"x")


def test_more_than_the_declared_size_is_rejected(blobs: BlobDirectory) -> None:
    with pytest.raises(ResourceExhausted, match="longer than its declared"):
        receive(blobs, CONTENT + b"x")


def test_too_few_bytes_are_not_a_blob_but_stay_for_a_resume(blobs: BlobDirectory) -> None:
    with blobs.receive(REF) as incoming:
        incoming.append(0, CONTENT[:-1])
        with pytest.raises(InvalidInput, match="send the rest"):
            incoming.finish()
    assert receive(blobs) == len(CONTENT) - 1
    assert not blobs.has(REF)


def test_the_wrong_bytes_are_rejected_and_forgotten(blobs: BlobDirectory) -> None:
    with blobs.receive(REF) as incoming:
        incoming.append(0, b"\1" * len(CONTENT))
        with pytest.raises(Corrupt):
            incoming.finish()
    assert receive(blobs) == 0
    assert not blobs.has(REF)


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 63])
def test_an_invalid_sha256_is_rejected(blobs: BlobDirectory, name: str) -> None:
    with pytest.raises(NotFound):
        blobs.find(name)
    with pytest.raises(InvalidInput, match="hexadecimal"):
        BlobRef(name, 1)
