"""Uploads of both clients: a bundle's files, and the first message."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2


@contextmanager
def bundle_files(bundle: Bundle) -> Iterator[dict[BlobRef, Path]]:
    """Extract a bundle's files, by blob, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        files = {}
        for name, content in bundle.files.items():
            path = Path(directory) / name
            path.write_bytes(content)
            files[ref_of_bytes(content)] = path
        yield files


def header_request(files: Mapping[BlobRef, Path]) -> control_pb2.UploadRequest:
    """Return the first message of an upload."""
    header = control_pb2.UploadHeader(blobs=[transport.to_message(ref) for ref in files])
    return control_pb2.UploadRequest(header=header)
