"""A synchronous connection: performs the steps of a call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc

from moonfed.blobs.store import BlobRef
from moonfed.client.calls.steps import Ask, Fetch, Send, Sleep, Step, Steps
from moonfed.client.calls.watch import Watch
from moonfed.client.records.events import Event, Interrupted
from moonfed.errors import Unavailable
from moonfed.transport import client as transport
from moonfed.transport.operator_connection import Endpoint
from moonfed.transport.upload import UPLOAD_ATTEMPTS, upload
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

T = TypeVar("T")


class Caller:
    """An open channel to a coordinator."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel = transport.open_channel(endpoint.address, endpoint.identity)
        self._control = control_pb2_grpc.ControlStub(self._channel)

    def close(self) -> None:
        """Close the connection; leaving `with` does so, too."""
        self._channel.close()

    def _do(self, steps: Steps[T]) -> T:
        """Perform a call's steps; return its result."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self._perform(step))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()  # which removes temporary files

    def _perform(self, step: Step) -> Any:  # noqa: ANN401 - whatever the step results in
        match step:
            case Ask():
                return self._ask(step)
            case Send(files):
                return upload(self._control, files, self._endpoint.explain)
            case Fetch(ref):
                return self._fetch(ref)
            case Sleep(seconds):
                return time.sleep(seconds)

    def _ask(self, step: Ask) -> Any:  # noqa: ANN401 - a message, or a list of them
        method = getattr(self._control, step.method)

        def listed(request: object, timeout: float) -> list[Any]:
            return list(method(request, timeout=timeout))

        call = listed if step.streams else method
        return transport.call(call, step.request, attempts=step.attempts, explain=self._endpoint.explain)

    def _fetch(self, ref: BlobRef) -> bytes:
        """Return a verified blob, resuming after an interruption."""
        content, backoff = bytearray(), transport.Backoff()
        for attempt in range(1, UPLOAD_ATTEMPTS + 1):
            try:
                for chunk in self._control.Fetch(blob_pb2.FetchRequest(sha256=ref.sha256, offset=len(content))):
                    content += chunk.data
                    if len(content) > ref.size:
                        break
                break
            except grpc.RpcError as error:
                problem = transport.explained(error, self._endpoint.explain)
                if attempt == UPLOAD_ATTEMPTS or not isinstance(problem, Unavailable):
                    raise problem from error
            time.sleep(backoff.next())
        return transport.verified(bytes(content), ref)

    def _watch(self, run: str, *, progress: bool) -> Iterator[Event]:
        """Yield a run's events until it has ended, across interruptions."""
        watch, backoff = Watch(run), transport.Backoff(limit=10.0)
        while not watch.ended:
            call = self._control.WatchRun(control_pb2.WatchRunRequest(run=run, progress=progress))
            try:
                for message in call:
                    backoff.reset()
                    yield from self._do(watch.receive(message))
                yield from self._do(watch.close())
            except grpc.RpcError as error:
                problem = transport.explained(error, self._endpoint.explain)
                if not isinstance(problem, Unavailable):
                    raise problem from error
                yield Interrupted(reason=str(problem))
            except Unavailable as problem:
                yield Interrupted(reason=str(problem))
            finally:
                call.cancel()  # type: ignore[no-untyped-call]
            if not watch.ended:
                time.sleep(backoff.next())
