"""Handing in an update: a header, its blobs' parts from where the coordinator's resume says, a commit, a receipt."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from moonfed import transport
from moonfed.blobs import BlobRef
from moonfed.errors import Corrupt, Unavailable
from moonfed.v1 import blob_pb2, fleet_pb2

Offsets = Mapping[str, int]


def submit(
    method: Callable[..., Iterable[fleet_pb2.SubmitReply]],
    header: fleet_pb2.SubmitHeader,
    files: Mapping[BlobRef, Path],
) -> None:
    """Returns when the coordinator has the update for good; doing it again is harmless.

    Raises grpc.RpcError from `method`, Unavailable if the stream ends early, Corrupt for a receipt of something else.
    """
    resume: queue.SimpleQueue[Offsets | None] = queue.SimpleQueue()
    try:
        for reply in method(_requests(header, files, resume)):
            if reply.HasField("resume"):
                resume.put(dict(reply.resume.offsets))
            else:
                _check_receipt(reply.receipt, header)
                return
        raise Unavailable("the coordinator ended the upload without a receipt")
    finally:
        resume.put(None)  # lets go of gRPC's thread, which may still wait in _requests


def _requests(
    header: fleet_pb2.SubmitHeader, files: Mapping[BlobRef, Path], resume: queue.SimpleQueue[Offsets | None]
) -> Iterator[fleet_pb2.SubmitRequest]:
    yield fleet_pb2.SubmitRequest(header=header)
    offsets = resume.get()
    if offsets is None:
        return
    for part in transport.parts(files, offsets):
        yield fleet_pb2.SubmitRequest(part=part)
    yield fleet_pb2.SubmitRequest(commit=blob_pb2.Commit())


def _check_receipt(receipt: fleet_pb2.Receipt, header: fleet_pb2.SubmitHeader) -> None:
    sent = {role: blob.sha256 for role, blob in header.blobs.items()}
    if dict(receipt.sha256) != sent:
        raise Corrupt(f"the coordinator's receipt is for {dict(receipt.sha256)}; {sent} was sent")
