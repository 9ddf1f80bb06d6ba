"""Upload of an update: a header, the parts that the coordinator lacks, a commit, a receipt."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from moonfed.blobs.store import BlobRef
from moonfed.edge_client.agent.throttle import MIN_PART_SIZE, Throttle
from moonfed.errors import Corrupt, Unavailable
from moonfed.transport import client as transport
from moonfed.v1 import blob_pb2, fleet_pb2


class UpdateUpload:
    """The parts of one update in transit, throttled if there is a limit."""

    def __init__(self, files: Mapping[BlobRef, Path], throttle: Throttle | None = None) -> None:
        self.done = threading.Event()  # once all parts are sent
        self._files, self._throttle = files, throttle
        self._stopped = threading.Event()

    def parts(self, resume: blob_pb2.Resume) -> Iterator[blob_pb2.Part]:
        """Yield the parts that the coordinator lacks; end early if `stop` is called."""
        size = self._throttle.part_size if self._throttle else transport.PART_SIZE
        if resume.part_size:  # it asks slow devices for small parts
            size = max(MIN_PART_SIZE, min(size, resume.part_size))
        for part in transport.parts(self._files, resume.offsets, size):
            yield part
            if self._throttle and self._stopped.wait(self._throttle.consume(len(part.data))):
                return
        self.done.set()

    def stop(self) -> None:
        """Release a thread that waits in `parts`."""
        self._stopped.set()


def submit(
    method: Callable[..., Iterable[fleet_pb2.SubmitReply]], header: fleet_pb2.SubmitHeader, sending: UpdateUpload
) -> None:
    """Upload the update; return once it is durable. Idempotent.

    Raises grpc.RpcError from `method`, Unavailable if the stream ends early, Corrupt if the receipt does not match.
    """
    resume: queue.SimpleQueue[blob_pb2.Resume | None] = queue.SimpleQueue()
    try:
        for reply in method(_requests(header, sending, resume)):
            if reply.HasField("resume"):
                resume.put(reply.resume)
            else:
                _check_receipt(reply.receipt, header)
                return
        raise Unavailable("the coordinator ended the upload without a receipt")
    finally:
        resume.put(None)  # release gRPC's thread, which may still wait in _requests
        sending.stop()


def _requests(
    header: fleet_pb2.SubmitHeader, sending: UpdateUpload, resume: queue.SimpleQueue[blob_pb2.Resume | None]
) -> Iterator[fleet_pb2.SubmitRequest]:
    yield fleet_pb2.SubmitRequest(header=header)
    stored = resume.get()
    if stored is None:
        return
    for part in sending.parts(stored):
        yield fleet_pb2.SubmitRequest(part=part)
    if not sending.done.is_set():
        return
    yield fleet_pb2.SubmitRequest(commit=blob_pb2.Commit())


def _check_receipt(receipt: fleet_pb2.Receipt, header: fleet_pb2.SubmitHeader) -> None:
    sent = {role: blob.sha256 for role, blob in header.blobs.items()}
    if dict(receipt.sha256) != sent:
        raise Corrupt(f"the coordinator's receipt is for {dict(receipt.sha256)}; {sent} was sent")
