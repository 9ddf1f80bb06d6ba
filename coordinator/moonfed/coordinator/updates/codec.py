"""Decodes updates into the spool and encodes global models as blobs; the arithmetic in between is on float32 files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import file_size
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.encodings import ENCODED_MODEL, PLAIN, Encoding, Encodings
from moonfed.files import sync_file


def decoded_bytes(manifest: Manifest, encodings: Encodings) -> int:
    """Return the disk space that decoding an update takes, in bytes."""
    return file_size(manifest.tensors) if encodings.updates_encoded else 0


def decode_update(
    blobs: BlobStore, files: Mapping[str, Path], manifest: Manifest, encodings: Encodings, initial_model: BlobRef
) -> dict[str, Path]:
    """Decode an encoded update's files, by role: the model, durably next to the received file. Blocking.

    `initial_model`: the global model of the update's round. Changes are added to it, not to the rounded model that
    devices started from, so the run loses nothing to the downlink's encoding.

    Raises InvalidInput, or SchemaMismatch naming the tensor, for an invalid file.
    """
    if not encodings.updates_encoded:
        return {}
    decoded = files[MODEL].with_name(f"{files[MODEL].name}.decoded")
    base = blobs.verified_path(initial_model) if encodings.changes else None
    decode_model(files[MODEL], decoded, manifest.tensors, encodings.up, initial_model=base)
    sync_file(decoded)
    return {MODEL: decoded}


def encode_global_model(model: Path, target: Path, manifest: Manifest, down: Encoding) -> dict[str, Path]:
    """Encode a checked global model for devices: the file by role, none if it is sent as it is. Blocking."""
    if down == PLAIN:
        return {}
    encode_model(model, target, manifest.tensors, down)
    return {ENCODED_MODEL: target}
