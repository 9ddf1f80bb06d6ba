"""Contents of blobs, stored like an upload."""

from __future__ import annotations

from moonfed.blobs.store import BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.storage.blobs.blob_store import BlobStore

CONTENT = bytes(range(256)) * 5000
REF = ref_of_bytes(CONTENT)


def put(blobs: BlobStore, content: bytes) -> BlobRef:
    """Store a blob like an upload."""
    ref = ref_of_bytes(content)
    incoming = Incoming(blobs.incoming(ref), ref)
    incoming.append(0, content)
    blobs.put_file(incoming.finish(), ref)
    return ref
