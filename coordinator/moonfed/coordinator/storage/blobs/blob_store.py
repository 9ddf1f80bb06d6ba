"""What the coordinator asks of the place where its blobs are: a directory (`moonfed.blobs`) or an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from moonfed.blobs import BlobRef


class BlobStore(Protocol):
    """Immutable bytes by their sha256, durable when put, checked when read. Blocking, from any thread."""

    def incoming(self, ref: BlobRef) -> Path:
        """The file of this machine that a blob is received into; `put_file` it when it is whole."""

    def has(self, ref: BlobRef) -> bool:
        """Whether the whole blob is stored."""

    def find(self, sha256: str) -> BlobRef:
        """The blob of that name; raises NotFound."""

    def put_bytes(self, content: bytes) -> BlobRef:
        """Stores some bytes; storing them again changes nothing."""

    def put_file(self, path: Path, ref: BlobRef) -> None:
        """Takes over a file that was already checked and fsynced."""

    def read(self, ref: BlobRef) -> bytes:
        """The bytes of a small blob; raises NotFound, or Corrupt if they are not what their name says."""

    def local(self, ref: BlobRef) -> Path:
        """A file of this machine with the blob's bytes, to be opened soon, not hashed once more; raises NotFound."""

    def verified_path(self, ref: BlobRef) -> Path:
        """The same after its bytes were checked; raises NotFound, or Corrupt."""

    def delete(self, sha256: str) -> None:
        """Deletes a blob; it is no matter if it is not there."""

    def unused_since(self, seconds: float) -> Iterator[BlobRef]:
        """The blobs that were stored longer ago; what was left of receiving others goes."""
