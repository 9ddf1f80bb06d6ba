"""Blobs: immutable bytes named by their sha256, stored in a directory, verified when received and when read."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.errors import Corrupt, InvalidInput, NotFound, ResourceExhausted
from moonfed.files import fsync, make_directories, sync_directory, write_durably

READ_SIZE = 1 << 18  # bytes read at once when hashing: they stay in the processor's cache
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob's name and length in bytes."""

    sha256: str
    size: int

    def __post_init__(self) -> None:
        if not DIGEST.fullmatch(self.sha256):
            raise InvalidInput(field="sha256", value=self.sha256, allowed="64 lower-case hexadecimal digits")
        if self.size < 0:
            raise InvalidInput(f"size of blob {self.sha256[:12]} is {self.size}; it must not be negative")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> BlobRef:
        """Read the JSON values; raise KeyError, TypeError, ValueError or InvalidInput."""
        return cls(str(document["sha256"]), int(document["size"]))


def ref_of_bytes(content: bytes) -> BlobRef:
    """Return the name and length of some bytes."""
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content))


def ref_of_file(path: Path) -> BlobRef:
    """Return the name and length of a file's content, read in pieces."""
    digest, size = _digest(path)
    return BlobRef(digest.hexdigest(), size)


def _digest(path: Path) -> tuple[hashlib._Hash, int]:
    """Return a file's sha256 and length."""
    digest = hashlib.sha256()
    size = 0
    piece = memoryview(bytearray(READ_SIZE))
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(piece):
            digest.update(piece[:read])
            size += read
    return digest, size


class Incoming:
    """A blob being received into a file, resumable until it is complete. Leaving `with` keeps the partial file.

    Bytes are hashed as they arrive; an earlier partial file is read back once.
    """

    def __init__(self, path: Path, ref: BlobRef) -> None:
        self.path, self.ref = path, ref
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if self._file.tell() > ref.size:  # left by something else: start over
            self._file.truncate(0)
            self._file.seek(0)
        self.offset = self._file.tell()  # bytes held so far
        self._digest = _digest(path)[0] if self.offset else hashlib.sha256()

    @property
    def closed(self) -> bool:
        """True if the file is closed."""
        return self._file.closed

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, offset: int, data: bytes) -> None:
        """Add the next bytes.

        Raises InvalidInput if they do not follow the stored ones, ResourceExhausted if they exceed the declared size or
        the disk is full.
        """
        if offset != self.offset:
            raise InvalidInput(f"part of blob {self.ref.sha256[:12]} starts at {offset}; {self.offset} was expected")
        if offset + len(data) > self.ref.size:
            raise ResourceExhausted(f"blob {self.ref.sha256[:12]} is longer than its declared {self.ref.size} bytes")
        try:
            self._file.write(data)
        except OSError as error:
            raise _disk_error(error) from error
        self._digest.update(data)
        self.offset += len(data)

    def finish(self) -> Path:
        """Check length and sha256, make the bytes durable and return their file; remove a wrong blob's file."""
        with self:
            self._check()
            self._flush()
            fsync(self._file.fileno())
        return self.path

    def _check(self) -> None:
        if self.offset != self.ref.size:
            raise InvalidInput(
                f"blob {self.ref.sha256[:12]} has {self.offset} of {self.ref.size} bytes; send the rest first"
            )
        if self._digest.hexdigest() != self.ref.sha256:
            self.path.unlink()
            raise Corrupt(f"the bytes received as blob {self.ref.sha256[:12]} have another sha256; send them again")

    def _flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise _disk_error(error) from error

    def close(self) -> None:
        """Keep the received bytes for a later resume."""
        try:
            self._file.close()
        except OSError as error:
            raise _disk_error(error) from error


class BlobDirectory:
    """Blobs as files `ROOT/ab/abcd…`; incoming ones in `ROOT/incoming/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        make_directories(root / "incoming")

    def path(self, sha256: str) -> Path:
        """Return the path of a blob by its name, whether or not it exists."""
        return self.root / sha256[:2] / sha256

    def has(self, ref: BlobRef) -> bool:
        """Return whether the whole blob exists."""
        path = self.path(ref.sha256)
        return path.is_file() and path.stat().st_size == ref.size

    def find(self, sha256: str) -> BlobRef:
        """Return the blob of that name; raises NotFound."""
        path = self.path(sha256) if DIGEST.fullmatch(sha256) else None
        if path is None or not path.is_file():
            raise NotFound(f"there is no blob {sha256!r}", field="blob", value=sha256)
        return BlobRef(sha256, path.stat().st_size)

    def put_bytes(self, content: bytes) -> BlobRef:
        """Store some bytes durably; storing them again changes nothing."""
        ref = ref_of_bytes(content)
        if not self.has(ref):
            try:
                write_durably(self._place(ref), content)
            except OSError as error:
                raise _disk_error(error) from error
        return ref

    def put_file(self, path: Path, ref: BlobRef) -> None:
        """Move in a file that is already verified and fsynced; it must be on the same file system."""
        os.replace(path, self._place(ref))
        sync_directory(self.path(ref.sha256).parent)

    def read(self, ref: BlobRef) -> bytes:
        """Return the bytes of a small blob; raises Corrupt if they do not match their name."""
        path = self.path(ref.sha256)
        if not path.is_file():
            raise NotFound(f"there is no blob {ref.sha256!r}", field="blob", value=ref.sha256)
        content = path.read_bytes()
        if ref_of_bytes(content) != ref:
            raise Corrupt(f"the stored blob {ref.sha256[:12]} has another sha256: {path} is damaged")
        return content

    def verified_path(self, ref: BlobRef) -> Path:
        """Return the file of a large blob after its bytes were checked; raises NotFound, or Corrupt."""
        self.find(ref.sha256)
        path = self.path(ref.sha256)
        if ref_of_file(path) != ref:
            raise Corrupt(f"the stored blob {ref.sha256[:12]} has another sha256: {path} is damaged")
        return path

    def local(self, ref: BlobRef) -> Path:
        """Return the blob's file without hashing it; raise NotFound."""
        return self.path(self.find(ref.sha256).sha256)

    def delete(self, sha256: str) -> None:
        """Delete a blob if it exists."""
        self.path(sha256).unlink(missing_ok=True)

    def unused_since(self, seconds: float) -> Iterator[BlobRef]:
        """Return the blobs unchanged for that long; delete abandoned partial ones."""
        newest = time.time() - seconds
        for path in self.root.glob("*/*"):
            if path.stat().st_mtime > newest:
                continue
            if DIGEST.fullmatch(path.name) and path.parent.name != "incoming":
                yield BlobRef(path.name, path.stat().st_size)
            else:
                path.unlink()

    def incoming(self, ref: BlobRef) -> Path:
        """Return the file that a blob is received into; call `put_file` once it is complete."""
        return self.root / "incoming" / ref.sha256

    def receive(self, ref: BlobRef) -> Incoming:
        """Start or resume receiving a blob; pass the finished file to `put_file`."""
        return Incoming(self.incoming(ref), ref)

    def _place(self, ref: BlobRef) -> Path:
        path = self.path(ref.sha256)
        if not path.parent.is_dir():
            path.parent.mkdir()
            sync_directory(self.root)
        return path


def _disk_error(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceExhausted("this machine's disk is full")
    return error
