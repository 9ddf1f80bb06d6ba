"""The Fleet service: what devices call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import grpc

from moonfed.coordinator.api.device_api import DeviceApi
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.rpc import convert_fleet as convert
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import Turns
from moonfed.coordinator.rpc.stream_deadline import paced
from moonfed.coordinator.updates.submission import UpdateSession
from moonfed.errors import InvalidInput, WrongState
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc


class FleetService(fleet_pb2_grpc.FleetServicer):
    """Every call is made in the name of the certificate's device."""

    def __init__(self, devices: DeviceApi, callers: Authenticator, enrolment: Enrolment | None) -> None:
        self._devices, self._callers, self._enrolment = devices, callers, enrolment
        self._down, self._up = Turns(), Turns()

    async def Connect(  # noqa: N802, D102 - named and described in the .proto
        self, request: fleet_pb2.ConnectRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.ConnectReply]:
        device = self._callers.device(context, request.device)
        async with self._devices.attend(convert.introduction(device, request)) as session:
            yield convert.welcome()
            async for told in session.replies():
                yield convert.connect_reply(told)

    async def Fetch(  # type: ignore[override]  # noqa: N802, D102 - serialized already
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[bytes]:
        device = self._callers.device(context, request.device)
        turns = self._down, lambda: self._devices.held(device)
        async with aclosing(chunks(self._devices.blobs, request, *turns)) as parts:
            async for part in parts:
                yield part
                self._devices.moved_bytes(device)

    async def Report(  # noqa: N802, D102
        self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportReply:
        device = self._callers.device(context, request.device)
        return convert.report_reply(await self._devices.report(convert.attempt(request), device, request.fraction))

    async def Submit(  # noqa: N802, D102
        self, request_iterator: AsyncIterator[fleet_pb2.SubmitRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.SubmitReply]:
        requests = paced(request_iterator, self._up, lambda: self._devices.held(device))
        header = (await anext(requests, fleet_pb2.SubmitRequest())).header
        device = self._callers.device(context, header.device)
        submission = await self._devices.submit(convert.update_header(device, header))
        try:
            yield convert.resume(submission.offsets)
            await self._receive(requests, submission, device)
            with self._devices.held(device):
                counted = await submission.commit()
            yield convert.receipt(counted)
        finally:
            await submission.close()

    async def _receive(
        self, requests: AsyncGenerator[fleet_pb2.SubmitRequest, None], submission: UpdateSession, device: str
    ) -> None:
        """Takes parts until the commit. A device that dies ends the stream as one does that is done: nothing counts."""
        async for request in requests:
            self._devices.moved_bytes(device)
            if request.HasField("commit"):
                await requests.aclose()  # its turn is over
                return
            await submission.append(request.part.sha256, request.part.offset, request.part.data)
        raise InvalidInput("the stream ended without a commit; nothing counts, what was sent is kept for a resume")

    async def Decline(  # noqa: N802, D102
        self, request: fleet_pb2.DeclineRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.DeclineReply:
        device = self._callers.device(context, request.device)
        await self._devices.decline(convert.attempt(request), device, request.reason)
        return fleet_pb2.DeclineReply()

    async def Renew(  # noqa: N802, D102
        self, request: fleet_pb2.RenewRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.RenewReply:
        device = self._callers.device(context, request.device)
        if self._enrolment is None:
            raise WrongState("this coordinator runs with --insecure: there are no certificates to renew")
        signed = await asyncio.to_thread(self._enrolment.renew, device, request.signing_request)
        return fleet_pb2.RenewReply(certificate=signed.certificate)
