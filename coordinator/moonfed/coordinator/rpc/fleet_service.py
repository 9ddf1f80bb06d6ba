"""The Fleet service, which devices call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial

import grpc

from moonfed.coordinator.api.device_api import DeviceApi
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.pki.authority import Signed
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.records import MAX_REASON, EligibilityReport
from moonfed.coordinator.rpc import convert_fleet as convert
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator, caller_of, identify
from moonfed.coordinator.rpc.blob_stream import chunks
from moonfed.coordinator.rpc.flow_control import SMALL_PART, FlowControl, receive
from moonfed.coordinator.rpc.sockets import parse_peer
from moonfed.coordinator.updates.submission import Updates, UpdateSession
from moonfed.errors import InvalidInput, WrongState
from moonfed.fleet.messages import read_release_report
from moonfed.observability.flood_log import FloodLog
from moonfed.observability.trace_context import KEY
from moonfed.observability.tracing import tracer
from moonfed.printable import printable
from moonfed.transport.identity import Certificate
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc

FORMER_SECONDS = 2.0  # delay before a device's former connection is closed
_audit = logging.getLogger("moonfed.coordinator.audit")


class FleetService(fleet_pb2_grpc.FleetServicer):
    """Serves devices; every call is made in the name of the certificate's device."""

    def __init__(
        self,
        devices: DeviceApi,
        updates: Updates,
        authenticator: Authenticator,
        auditor: Auditor,
        enrolment: Enrolment | None,
        observer: Observer = SILENT,
    ) -> None:
        self._observer = observer
        self._devices = devices
        self._updates = updates
        self._auditor = auditor
        self._authenticator, self._enrolment = authenticator, enrolment
        self._downlink = FlowControl(stalled_part=SMALL_PART)
        self._uplink = FlowControl(of_one=2)  # a newer upload takes over from a stuck one
        self._renewals = FloodLog(_audit)
        self._peers: dict[str, str] = {}  # of the devices that are online

    async def Connect(
        self, request: fleet_pb2.ConnectRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.ConnectReply]:
        device = self._authenticator.device(context, request.device)
        certificate = self._authenticator.certificate(context)
        address = parse_peer(context.peer())
        info = convert.device_info(device, request, "{}:{}".format(*address) if address else "")
        installed = convert.installed(request)
        async with self._devices.connect(info, certificate, installed) as session:
            with self._sole_connection(device, context):
                yield convert.welcome()
                async for message in session.messages():
                    yield convert.connect_reply(message)

    @contextmanager
    def _sole_connection(self, device: str, context: grpc.ServicerContext) -> Iterator[None]:
        """Close a connection that the device has replaced, because its calls would delay those of the new one."""
        peer, former = context.peer(), self._peers.get(device)
        self._peers[device] = peer
        if former and former != peer:  # the former session may be alive, and is notified first
            asyncio.get_running_loop().call_later(FORMER_SECONDS, self._close_former, device, former)
        try:
            yield
        finally:
            if self._peers.get(device) == peer:
                del self._peers[device]

    def _close_former(self, device: str, peer: str) -> None:
        if self._peers.get(device) != peer:
            self._authenticator.close_former(peer)

    async def Fetch(  # type: ignore[override]  # serialized already
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[bytes]:
        device = self._authenticator.device(context, request.device)
        slot = self._downlink.stream(
            device,
            smallest=SMALL_PART,
            suspended=lambda: self._devices.suspended(device),
            stalled=lambda: self._authenticator.disconnect(context, "it does not read its download"),
        )
        certificate = self._authenticator.certificate(context)
        require_access = partial(self._devices.access.require, device, certificate.serial if certificate else "")
        sent: Callable[[int], None] = _ignore

        def begin(sha256: str) -> None:
            nonlocal sent
            require_access(sha256)
            sent = self._observer.download(sha256)

        async with aclosing(chunks(self._devices.blobs, request, slot, begin)) as parts:
            async for part in parts:
                yield part
                sent(len(part))
                self._devices.heartbeat(device)

    async def Report(self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext) -> fleet_pb2.ReportReply:
        device = self._authenticator.device(context, request.device)
        return convert.report_reply(await self._devices.report(convert.attempt(request), device, request.fraction))

    async def Submit(
        self, request_iterator: AsyncIterator[fleet_pb2.SubmitRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[fleet_pb2.SubmitReply]:
        caller = caller_of(context)
        requests = receive(
            request_iterator,
            self._uplink,
            caller,
            lambda: self._devices.suspended(device),
            size_of=fleet_pb2.SubmitRequest.ByteSize,
        )
        async with aclosing(requests):  # a rejected part would keep its slot until the garbage collector runs
            header = (await anext(requests, fleet_pb2.SubmitRequest())).header
            device = self._authenticator.device(context, header.device)
            session = await self._updates.admit(convert.update_header(device, header), _traceparent(context))
            try:
                yield convert.resume(session.offsets, self._uplink.part_size(caller))
                await self._receive_parts(requests, session, device)
                with self._devices.suspended(device):
                    receipt = await session.commit()
                yield convert.receipt(receipt)
            finally:
                await session.close()

    async def _receive_parts(
        self, requests: AsyncGenerator[fleet_pb2.SubmitRequest, None], session: UpdateSession, device: str
    ) -> None:
        """Write parts until the commit. The end of the stream is no commit: a crashing device ends it, too."""
        async for request in requests:
            self._devices.heartbeat(device)
            if request.HasField("commit"):
                await requests.aclose()  # releases its slot
                return
            await session.write(request.part.sha256, request.part.offset, request.part.data)
        raise InvalidInput("the stream ended without a commit; the parts received are kept and can be resumed")

    async def ReportEligibility(
        self, request: fleet_pb2.ReportEligibilityRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportEligibilityReply:
        device = self._authenticator.device(context, request.device)
        report = EligibilityReport(
            device=device,
            fingerprint=request.fingerprint,
            reason=printable(request.reason[:MAX_REASON]),
            classes=request.classes,
        )
        await self._devices.report_eligibility(request.run, request.manifest, report)
        return fleet_pb2.ReportEligibilityReply()

    async def ReportEvaluation(
        self, request: fleet_pb2.ReportEvaluationRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportEvaluationReply:
        device = self._authenticator.device(context, request.device)
        await self._devices.report_evaluation(convert.evaluation_report(device, request))
        return fleet_pb2.ReportEvaluationReply()

    async def Decline(self, request: fleet_pb2.DeclineRequest, context: grpc.ServicerContext) -> fleet_pb2.DeclineReply:
        device = self._authenticator.device(context, request.device)
        await self._devices.decline(convert.attempt(request), device, request.reason, permanent=request.permanent)
        return fleet_pb2.DeclineReply()

    async def ReportRelease(
        self, request: fleet_pb2.ReportReleaseRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportReleaseReply:
        device = self._authenticator.device(context, request.device)
        await self._devices.report_release(read_release_report(device, request))
        return fleet_pb2.ReportReleaseReply()

    async def Leave(self, request: fleet_pb2.LeaveRequest, context: grpc.ServicerContext) -> fleet_pb2.LeaveReply:
        await self._devices.leave(self._authenticator.device(context, request.device))
        return fleet_pb2.LeaveReply()

    async def Renew(self, request: fleet_pb2.RenewRequest, context: grpc.ServicerContext) -> fleet_pb2.RenewReply:
        if self._enrolment is None:
            raise WrongState("this coordinator runs with --insecure: there are no certificates to renew")
        certificate = self._authenticator.renewing_device(context, request.device)
        signed = await asyncio.to_thread(self._enrolment.renew, certificate, request.signing_request)
        self._log_renewal(context, certificate, signed)
        details = f"renew its certificate; {signed.serial} expires {signed.expiry:%Y-%m-%d %H:%M} UTC"
        await self._auditor.done(identify(context), "Renew", details)
        return fleet_pb2.RenewReply(certificate=signed.certificate)

    def _log_renewal(self, context: grpc.ServicerContext, before: Certificate, signed: Signed) -> None:
        line = "device %r at %s renewed its certificate %s; the new one is %s, valid until %s UTC"
        values = (before.name, context.peer(), before.serial, signed.serial, f"{signed.expiry:%Y-%m-%d %H:%M}")
        self._renewals.write(logging.INFO, before.name, line, *values, fields={"device": before.name})


def _traceparent(context: grpc.ServicerContext) -> str:
    """Return the span that a call belongs to, as its caller says; empty while tracing is off."""
    found = context.invocation_metadata() if tracer().on else ()
    return next((str(value) for key, value in found if key == KEY), "")


def _ignore(_size: int) -> None:
    pass
