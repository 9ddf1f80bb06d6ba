"""Contents of blobs, put into a store as an upload arrives."""

from __future__ import annotations

from moonfed.blobs import BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.storage.blobs.blob_store import BlobStore

CONTENT = bytes(range(256)) * 5000
REF = ref_of_bytes(CONTENT)


def put(blobs: BlobStore, content: bytes) -> BlobRef:
    """As an upload arrives."""
    ref = ref_of_bytes(content)
    incoming = Incoming(blobs.incoming(ref), ref)
    incoming.append(0, content)
    blobs.put_file(incoming.finish(), ref)
    return ref
