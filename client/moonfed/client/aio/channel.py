"""An operator's channel for asyncio: what differs between the two clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from moonfed.blobs.store import BlobRef
from moonfed.client.uploads import header_request
from moonfed.errors import MoonfedError, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.async_channel import open_async_channel
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc


class AsyncChannel:
    """A channel to a coordinator, which belongs to the event loop that first uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        if endpoint.identity is None:
            transport.require_loopback(transport.parse_address(endpoint.address)[0])

    @cached_property
    def _channel(self) -> aio.Channel:
        return open_async_channel(self._endpoint.address, self._endpoint.identity)

    @cached_property
    def _control(self) -> Any:  # noqa: ANN401 - whose methods are found by their names
        return control_pb2_grpc.ControlStub(self._channel)

    async def close(self) -> None:
        """Close the channel."""
        if "_channel" in self.__dict__:
            await self._channel.close(None)

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        await asyncio.sleep(seconds)

    async def _explained(self, error: grpc.RpcError) -> MoonfedError:
        """Convert a failed call's error; finding out why a coordinator is unreachable takes a thread."""
        return await asyncio.to_thread(transport.explained, error, self._endpoint.explain)

    async def _send(self, files: Mapping[BlobRef, Path]) -> MoonfedError | None:
        """Upload the blobs that the coordinator lacks; return why some are missing there still."""
        call, stored = self._control.Upload(None), set[BlobRef]()
        try:
            await call.write(header_request(files))
            async for reply in call:
                stored |= {transport.from_message(blob) for blob in reply.stored.blobs}
                if reply.HasField("resume"):
                    for part in transport.parts(files, reply.resume.offsets):
                        await call.write(control_pb2.UploadRequest(part=part))
                    await call.write(control_pb2.UploadRequest(commit=blob_pb2.Commit()))
                    await call.done_writing()
        except asyncio.InvalidStateError:  # the call ended well before all was sent
            pass
        except grpc.RpcError as error:
            return await self._explained(error)
        finally:
            call.cancel()
        return (
            None
            if stored >= set(files)
            else Unavailable("the coordinator ended the upload before all files were stored")
        )
