"""The Enrolment service, where a new device gets its certificate: TLS without a client certificate."""

from __future__ import annotations

import asyncio
import logging

import grpc

from moonfed.coordinator.devices.sessions import require_contract
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.records import MAX_REASON
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Caller, stranger
from moonfed.coordinator.rpc.interceptor import host_of
from moonfed.errors import MoonfedError
from moonfed.observability.flood_log import FloodLog
from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc

MAX_NAME = 63  # characters of an unauthenticated caller's name
_audit = logging.getLogger("moonfed.coordinator.audit")


class EnrolmentService(enrolment_pb2_grpc.EnrolmentServicer):
    """Enrols devices, and tells them the `fleet_port`."""

    def __init__(self, enrolment: Enrolment, fleet_port: int, auditor: Auditor) -> None:
        self._enrolment = enrolment
        self._fleet_port = fleet_port
        self._auditor = auditor
        self._audit = FloodLog(_audit)

    async def Enrol(
        self, request: enrolment_pb2.EnrolRequest, context: grpc.ServicerContext
    ) -> enrolment_pb2.EnrolReply:
        require_contract(request.contract_version, f"device {request.device!r}")
        try:
            signed = await asyncio.to_thread(
                self._enrolment.enrol, request.secret, request.device, request.signing_request
            )
        except MoonfedError as error:
            device, reason = request.device[:MAX_NAME], str(error)[:MAX_REASON]  # the caller's words
            line = "enrolment of %r from %s rejected: %s"
            self._log(context, logging.WARNING, line, device, context.peer(), reason)
            await self._auditor.denied(stranger(context, device), "Enrol", error)
            raise
        line = "device %r enrolled from %s with certificate %s"
        self._log(context, logging.INFO, line, request.device, context.peer(), signed.serial)
        caller = Caller(name=request.device, role="device", serial=signed.serial, peer=context.peer())
        details = f"enrol; certificate {signed.serial} expires {signed.expiry:%Y-%m-%d %H:%M} UTC"
        await self._auditor.done(caller, "Enrol", details)
        return enrolment_pb2.EnrolReply(
            device=request.device, certificate=signed.certificate, fleet_port=self._fleet_port
        )

    def _log(self, context: grpc.ServicerContext, level: int, line: str, device: str, *values: object) -> None:
        self._audit.write(level, host_of(context.peer()), line, device, *values, fields={"device": device})
