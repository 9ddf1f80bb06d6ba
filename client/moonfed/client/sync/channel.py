"""An operator's channel: what differs between the two clients."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from moonfed.blobs.store import BlobRef
from moonfed.client.uploads import header_request
from moonfed.errors import MoonfedError, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

_Offsets = queue.SimpleQueue[Mapping[str, int] | None]


class Channel:
    """An open channel to a coordinator."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel = transport.open_channel(endpoint.address, endpoint.identity)
        self._control: Any = control_pb2_grpc.ControlStub(self._channel)  # whose methods are found by their names

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def _explained(self, error: grpc.RpcError) -> MoonfedError:
        """Convert a failed call's error."""
        return transport.explained(error, self._endpoint.explain)

    def _send(self, files: Mapping[BlobRef, Path]) -> MoonfedError | None:
        """Upload the blobs that the coordinator lacks; return why some are missing there still."""
        offsets, stored = _Offsets(), set[BlobRef]()
        try:
            for reply in self._control.Upload(_requests(files, offsets)):
                if reply.HasField("resume"):
                    offsets.put(dict(reply.resume.offsets))
                stored |= {transport.from_message(blob) for blob in reply.stored.blobs}
        except grpc.RpcError as error:
            return self._explained(error)
        finally:
            offsets.put(None)  # releases gRPC's sending thread if no resume message came
        return (
            None
            if stored >= set(files)
            else Unavailable("the coordinator ended the upload before all files were stored")
        )


def _requests(files: Mapping[BlobRef, Path], offsets: _Offsets) -> Iterator[control_pb2.UploadRequest]:
    yield header_request(files)
    held = offsets.get()
    if held is None:
        return
    for part in transport.parts(files, held):
        yield control_pb2.UploadRequest(part=part)
    yield control_pb2.UploadRequest(commit=blob_pb2.Commit())
