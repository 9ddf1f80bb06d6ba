"""Blobs in an object store, with local copies of those in use."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from moonfed.blobs.store import DIGEST, BlobRef, ref_of_bytes, ref_of_file
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.errors import Corrupt, NotFound
from moonfed.files import write_durably

COPIES_BYTES = 4 << 30  # of copies always kept; beyond that the least recently used are deleted
COPY_SECONDS = 3600.0  # minimum life of a copy, since it may be being read


class ObjectBlobStore:
    """Blobs as objects `blobs/ab/abcd…`; copies in `ROOT/copies/`, incoming files in `ROOT/incoming/`."""

    def __init__(
        self,
        objects: ObjectClient,
        root: Path,
        *,
        copies_bytes: int = COPIES_BYTES,
        copy_seconds: float = COPY_SECONDS,
    ) -> None:
        self._objects = objects
        self._copies_bytes = copies_bytes
        self._copy_seconds = copy_seconds
        self._copies, self._incoming = root / "copies", root / "incoming"
        for directory in (self._copies, self._incoming):
            directory.mkdir(parents=True, exist_ok=True)
        self._busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # one download of a blob at a time
        self._checked: set[str] = set()  # copies from before the start are checked when they are used first

    def incoming(self, ref: BlobRef) -> Path:
        """Return the local file that a blob is received into; call `put_file` once it is complete."""
        return self._incoming / ref.sha256

    def has(self, ref: BlobRef) -> bool:
        """Return True if the complete blob is stored."""
        try:
            return self._objects.size(_key(ref.sha256)) == ref.size
        except NotFound:
            return False

    def find(self, sha256: str) -> BlobRef:
        """Look up a blob by its sha256; raises NotFound."""
        try:
            if DIGEST.fullmatch(sha256):
                return BlobRef(sha256, self._objects.size(_key(sha256)))
        except NotFound:
            pass
        raise NotFound(f"there is no blob {sha256!r}", field="blob", value=sha256)

    def put_bytes(self, content: bytes) -> BlobRef:
        """Store some bytes; idempotent."""
        ref = ref_of_bytes(content)
        if not self.has(ref):
            path = self._incoming / f"{ref.sha256}.{threading.get_ident()}"
            write_durably(path, content)
            self.put_file(path, ref)
        return ref

    def put_file(self, path: Path, ref: BlobRef) -> None:
        """Store a checked file; it becomes the local copy."""
        self._objects.put(path, _key(ref.sha256))
        with self._busy[ref.sha256]:
            os.replace(path, self._copies / ref.sha256)
            self._checked.add(ref.sha256)
        self._trim()

    def read(self, ref: BlobRef) -> bytes:
        """Read a small blob; raises NotFound, or Corrupt if the bytes do not match their sha256."""
        try:
            content = self._objects.read(_key(ref.sha256))
        except NotFound:
            raise NotFound(f"there is no blob {ref.sha256!r}", field="blob", value=ref.sha256) from None
        if ref_of_bytes(content) != ref:
            raise self._corrupt(ref)
        return content

    def local(self, ref: BlobRef) -> Path:
        """Return a local file with the blob's bytes; open it soon. Raises NotFound or Corrupt."""
        return self._copy(ref, verify=False)

    def verified_path(self, ref: BlobRef) -> Path:
        """Return a local file with the blob's bytes after checking them; a damaged copy is fetched again."""
        return self._copy(ref, verify=True)

    def delete(self, sha256: str) -> None:
        """Delete a blob and its local copy, if they exist."""
        self._objects.delete(_key(sha256))
        (self._copies / sha256).unlink(missing_ok=True)

    def unused_since(self, seconds: float) -> Iterator[BlobRef]:
        """Yield the blobs stored more than `seconds` ago, and delete incomplete uploads older than that."""
        newest = time.time() - seconds
        for path in self._incoming.iterdir():
            if path.stat().st_mtime < newest:
                path.unlink(missing_ok=True)
        for key, size, stored in self._objects.listed("blobs"):
            name = key.rpartition("/")[2]
            if DIGEST.fullmatch(name) and stored is not None and stored < newest:
                yield BlobRef(name, size)

    def _copy(self, ref: BlobRef, *, verify: bool) -> Path:
        path = self._copies / ref.sha256
        with self._busy[ref.sha256]:
            if not path.is_file() or ((verify or ref.sha256 not in self._checked) and ref_of_file(path) != ref):
                self._fetch(ref, path)
            self._checked.add(ref.sha256)
            os.utime(path)  # when it was used last
        self._trim()
        return path

    def _fetch(self, ref: BlobRef, path: Path) -> None:
        temporary = self._incoming / f"{ref.sha256}.{threading.get_ident()}"
        try:
            self._objects.get(_key(ref.sha256), temporary)
            if ref_of_file(temporary) != ref:
                raise self._corrupt(ref)
            os.replace(temporary, path)
        except NotFound:
            raise NotFound(f"there is no blob {ref.sha256!r}", field="blob", value=ref.sha256) from None
        finally:
            temporary.unlink(missing_ok=True)

    def _trim(self) -> None:
        """Delete the least recently used copies while they exceed the limit."""
        entries = sorted((entry.stat().st_mtime, entry) for entry in self._copies.iterdir())
        total = sum(entry.stat().st_size for _, entry in entries)
        newest = time.time() - self._copy_seconds
        for used, entry in entries:
            if total <= self._copies_bytes or used > newest:
                return
            total -= entry.stat().st_size
            entry.unlink(missing_ok=True)

    def _corrupt(self, ref: BlobRef) -> Corrupt:
        where = f"{self._objects.url}/{_key(ref.sha256)}"
        return Corrupt(f"the stored blob {ref.sha256[:12]} has another sha256: {where} is damaged")


def _key(sha256: str) -> str:
    return f"blobs/{sha256[:2]}/{sha256}"
