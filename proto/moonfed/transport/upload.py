"""An operator's upload of blobs to a coordinator, resumed after a broken connection."""

from __future__ import annotations

import queue
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.errors import MoonfedError, Unavailable
from moonfed.transport import client as transport
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

UPLOAD_ATTEMPTS = 8


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


def upload(
    control: control_pb2_grpc.ControlStub, files: Mapping[BlobRef, Path], explain: Callable[[], MoonfedError]
) -> None:
    """Upload the blobs that the coordinator lacks; `explain` says why it is unavailable."""
    backoff = transport.Backoff()
    for attempt in range(1, UPLOAD_ATTEMPTS + 1):
        problem = _upload_once(control, files, explain)
        if problem is None:
            return
        if attempt == UPLOAD_ATTEMPTS or not isinstance(problem, Unavailable):
            raise problem
        time.sleep(backoff.next())


def _upload_once(
    control: control_pb2_grpc.ControlStub, files: Mapping[BlobRef, Path], explain: Callable[[], MoonfedError]
) -> MoonfedError | None:
    offsets: queue.SimpleQueue[Mapping[str, int] | None] = queue.SimpleQueue()
    stored: set[BlobRef] = set()
    try:
        for reply in control.Upload(_requests(files, offsets)):
            if reply.HasField("resume"):
                offsets.put(dict(reply.resume.offsets))
            stored.update(transport.from_message(blob) for blob in reply.stored.blobs)
    except grpc.RpcError as error:
        return transport.explained(error, explain)
    finally:
        offsets.put(None)  # releases gRPC's sending thread if no resume message came
    return (
        None if stored >= set(files) else Unavailable("the coordinator ended the upload before all files were stored")
    )


def _requests(
    files: Mapping[BlobRef, Path], offsets: queue.SimpleQueue[Mapping[str, int] | None]
) -> Iterator[control_pb2.UploadRequest]:
    yield header_request(files)
    held = offsets.get()
    if held is None:
        return
    for part in transport.parts(files, held):
        yield control_pb2.UploadRequest(part=part)
    yield control_pb2.UploadRequest(commit=blob_pb2.Commit())


def header_request(files: Mapping[BlobRef, Path]) -> control_pb2.UploadRequest:
    """Return the first message of an upload."""
    header = control_pb2.UploadHeader(blobs=[transport.to_message(ref) for ref in files])
    return control_pb2.UploadRequest(header=header)
