"""The Control service's calls about operators and the audit trail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc

from moonfed.control.codec import to_message
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.pki.operators import OperatorIdentities
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.control_calls import ControlCalls
from moonfed.coordinator.storage.audit_trail import AuditFilter
from moonfed.errors import WrongState
from moonfed.v1 import control_pb2


class OperatorCalls(ControlCalls):
    """Creates, lists and revokes operators, and streams the audit trail. `identities`: None without TLS."""

    def __init__(
        self,
        authenticator: Authenticator,
        auditor: Auditor,
        operators: OperatorApi,
        identities: OperatorIdentities | None,
    ) -> None:
        ControlCalls.__init__(self, authenticator, auditor)
        self._api, self._identities = operators, identities

    async def CreateOperator(
        self, request: control_pb2.CreateOperatorRequest, context: grpc.ServicerContext
    ) -> control_pb2.CreateOperatorReply:
        caller = self._require(context, "CreateOperator")
        details = f"create operator {request.operator!r} with the role {request.role!r}"
        async with self._change(context, "CreateOperator", details) as change:
            issuer = self._issuer()
            signed = await asyncio.to_thread(
                issuer.create, request.operator, request.role, request.signing_request, caller.name
            )
            change.details = f"create operator {request.operator!r} with the role {request.role}"
            change.details += f": certificate {signed.serial}"
        return control_pb2.CreateOperatorReply(certificate=signed.certificate, address=issuer.address)

    async def ListOperators(
        self, request: control_pb2.ListOperatorsRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListOperatorsReply:
        self._require(context, "ListOperators")
        return control_pb2.ListOperatorsReply(
            operators=[to_message(control_pb2.Operator, found) for found in await self._api.operators()]
        )

    async def RevokeOperator(
        self, request: control_pb2.RevokeOperatorRequest, context: grpc.ServicerContext
    ) -> control_pb2.RevokeOperatorReply:
        async with self._change(context, "RevokeOperator", f"revoke operator {request.operator!r}") as change:
            revoked = await asyncio.to_thread(self._issuer().revoke, request.operator)
            change.details += f": certificates {', '.join(found.serial for found in revoked) or 'none'}"
        return control_pb2.RevokeOperatorReply(operators=[to_message(control_pb2.Operator, found) for found in revoked])

    async def ListAuditRecords(
        self, request: control_pb2.ListAuditRecordsRequest, context: grpc.ServicerContext
    ) -> AsyncIterator[control_pb2.AuditRecord]:
        self._require(context, "ListAuditRecords")
        chosen = AuditFilter(name=request.name, call=request.call, denied=request.denied, since=request.since)
        async with aclosing(self._api.audit_records(chosen, request.newest, follow=request.follow)) as records:
            async for record in records:
                yield to_message(control_pb2.AuditRecord, record)

    def _issuer(self) -> OperatorIdentities:
        if self._identities is None:
            raise WrongState("this coordinator runs with --insecure: operators need no certificates")
        return self._identities
