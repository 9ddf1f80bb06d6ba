"""An asynchronous connection: performs the steps of a call on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc import aio

from moonfed.blobs.store import BlobRef
from moonfed.client.calls.steps import Ask, Fetch, Send, Sleep, Step, Steps
from moonfed.client.calls.watch import Watch
from moonfed.client.records.events import Event, Interrupted
from moonfed.errors import MoonfedError, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.async_channel import open_async_channel
from moonfed.transport.operator_connection import Endpoint
from moonfed.transport.upload import UPLOAD_ATTEMPTS, header_request
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

T = TypeVar("T")


class AsyncCaller:
    """A channel to a coordinator, which belongs to the event loop that first uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        if endpoint.identity is None:
            transport.require_loopback(transport.parse_address(endpoint.address)[0])

    @cached_property
    def _channel(self) -> aio.Channel:
        return open_async_channel(self._endpoint.address, self._endpoint.identity)

    @cached_property
    def _control(self) -> control_pb2_grpc.ControlAsyncStub:
        return control_pb2_grpc.ControlStub(self._channel)

    async def close(self) -> None:
        """Close the connection; leaving `async with` does so, too."""
        if "_channel" in self.__dict__:
            await self._channel.close(None)

    async def _do(self, steps: Steps[T]) -> T:
        """Perform a call's steps; return its result."""
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._perform(step))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()  # which removes temporary files, also when the task is cancelled

    async def _perform(self, step: Step) -> Any:  # noqa: ANN401 - whatever the step results in
        match step:
            case Ask():
                return await self._ask(step)
            case Send(files):
                return await self._send(files)
            case Fetch(ref):
                return await self._fetch(ref)
            case Sleep(seconds):
                return await asyncio.sleep(seconds)

    async def _explained(self, error: grpc.RpcError) -> MoonfedError:
        """Convert a failed call's error; finding out why a coordinator is unreachable takes a thread."""
        return await asyncio.to_thread(transport.explained, error, self._endpoint.explain)

    async def _ask(self, step: Ask) -> Any:  # noqa: ANN401 - a message, or a list of them
        method, backoff, attempts = getattr(self._control, step.method), transport.Backoff(), step.attempts
        while True:
            attempts -= 1
            try:
                call = method(step.request, timeout=transport.CALL_SECONDS)
                return [reply async for reply in call] if step.streams else await call
            except grpc.RpcError as error:
                problem = await self._explained(error)
                if attempts <= 0 or not isinstance(problem, Unavailable):
                    raise problem from error
            await asyncio.sleep(backoff.next())

    async def _send(self, files: Mapping[BlobRef, Path]) -> None:
        """Upload the blobs that the coordinator lacks, resuming after an interruption."""
        backoff = transport.Backoff()
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            try:
                if await self._send_once(files) >= set(files):
                    return
                problem: MoonfedError = Unavailable("the coordinator ended the upload before all files were stored")
            except grpc.RpcError as error:
                problem = await self._explained(error)
            if attempt == UPLOAD_ATTEMPTS or not isinstance(problem, Unavailable):
                raise problem
            await asyncio.sleep(backoff.next())

    async def _send_once(self, files: Mapping[BlobRef, Path]) -> set[BlobRef]:
        """Send what the coordinator lacks; return what it has stored."""
        call = self._control.Upload(None)
        stored: set[BlobRef] = set()
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
        finally:
            call.cancel()
        return stored

    async def _fetch(self, ref: BlobRef) -> bytes:
        """Return a verified blob, resuming after an interruption."""
        content, backoff = bytearray(), transport.Backoff()
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            try:
                async for chunk in self._control.Fetch(blob_pb2.FetchRequest(sha256=ref.sha256, offset=len(content))):
                    content += chunk.data
                    if len(content) > ref.size:
                        break
                break
            except grpc.RpcError as error:
                problem = await self._explained(error)
                if attempt == UPLOAD_ATTEMPTS or not isinstance(problem, Unavailable):
                    raise problem from error
            await asyncio.sleep(backoff.next())
        return transport.verified(bytes(content), ref)

    async def _watch(self, run: str, *, progress: bool) -> AsyncIterator[Event]:
        """Yield a run's events until it has ended, across interruptions."""
        watch, backoff = Watch(run), transport.Backoff(limit=10.0)
        while not watch.ended:
            call = self._control.WatchRun(control_pb2.WatchRunRequest(run=run, progress=progress))
            try:
                async for message in call:
                    backoff.reset()
                    for event in await self._do(watch.receive(message)):
                        yield event
                for event in await self._do(watch.close()):
                    yield event
            except grpc.RpcError as error:
                problem = await self._explained(error)
                if not isinstance(problem, Unavailable):
                    raise problem from error
                yield Interrupted(reason=str(problem))
            except Unavailable as problem:
                yield Interrupted(reason=str(problem))
            finally:
                call.cancel()
            if not watch.ended:
                await asyncio.sleep(backoff.next())
