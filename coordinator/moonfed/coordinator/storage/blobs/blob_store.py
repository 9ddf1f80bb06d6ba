"""The interface of blob stores: a directory (`moonfed.blobs.store`) or an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from moonfed.blobs.store import BlobRef


class BlobStore(Protocol):
    """Immutable bytes by their sha256, durable when put, checked when read. Blocking, from any thread."""

    def incoming(self, ref: BlobRef) -> Path:
        """Return the local file that a blob is received into; call `put_file` once it is complete."""

    def has(self, ref: BlobRef) -> bool:
        """Return True if the complete blob is stored."""

    def find(self, sha256: str) -> BlobRef:
        """Look up a blob by its sha256; raises NotFound."""

    def put_bytes(self, content: bytes) -> BlobRef:
        """Store some bytes; idempotent."""

    def put_file(self, path: Path, ref: BlobRef) -> None:
        """Move a checked and fsynced file into the store."""

    def read(self, ref: BlobRef) -> bytes:
        """Read a small blob; raises NotFound, or Corrupt if the bytes do not match their sha256."""

    def local(self, ref: BlobRef) -> Path:
        """Return a local file with the blob's bytes without hashing them again; open it soon. Raises NotFound."""

    def verified_path(self, ref: BlobRef) -> Path:
        """Return a local file with the blob's bytes after checking them; raises NotFound or Corrupt."""

    def delete(self, sha256: str) -> None:
        """Delete a blob if it exists."""

    def unused_since(self, seconds: float) -> Iterator[BlobRef]:
        """Yield the blobs stored more than `seconds` ago, and delete incomplete uploads older than that."""
