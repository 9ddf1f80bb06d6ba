"""The Control service's calls that administer devices and join tokens."""

from __future__ import annotations

import asyncio

import grpc

from moonfed.control.codec import to_message
from moonfed.control.devices import NewToken
from moonfed.coordinator.api.admin_api import AdminApi
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import Authenticator
from moonfed.coordinator.rpc.control_calls import ControlCalls
from moonfed.errors import WrongState
from moonfed.formatting import count
from moonfed.labels import write_labels
from moonfed.v1 import control_pb2


class DeviceCalls(ControlCalls):
    """Administration of devices and join tokens. `enrolment`: None without TLS."""

    def __init__(
        self, authenticator: Authenticator, auditor: Auditor, admin: AdminApi, enrolment: Enrolment | None
    ) -> None:
        ControlCalls.__init__(self, authenticator, auditor)
        self._admin, self._enrolment = admin, enrolment

    async def GetDevice(
        self, request: control_pb2.GetDeviceRequest, context: grpc.ServicerContext
    ) -> control_pb2.Device:
        self._require(context, "GetDevice")
        return to_message(control_pb2.Device, await self._admin.device(request.device))

    async def RevokeDevice(
        self, request: control_pb2.RevokeDeviceRequest, context: grpc.ServicerContext
    ) -> control_pb2.Device:
        async with self._change(context, "RevokeDevice", f"revoke device {request.device!r}") as change:
            self._require_certificates("revoke")
            device = await self._admin.revoke_device(request.device)
            change.details += f": certificates {', '.join(found.serial for found in device.certificates) or 'none'}"
        return to_message(control_pb2.Device, device)

    async def RemoveDevice(
        self, request: control_pb2.RemoveDeviceRequest, context: grpc.ServicerContext
    ) -> control_pb2.RemoveDeviceReply:
        async with self._change(context, "RemoveDevice", f"remove device {request.device!r}"):
            await self._admin.remove_device(request.device)
        return control_pb2.RemoveDeviceReply()

    async def RenameDevice(
        self, request: control_pb2.RenameDeviceRequest, context: grpc.ServicerContext
    ) -> control_pb2.Device:
        async with self._change(context, "RenameDevice", f"rename device {request.device!r} to {request.name!r}"):
            self._require_certificates("rename")
            return to_message(control_pb2.Device, await self._admin.rename_device(request.device, request.name))

    async def LabelDevice(
        self, request: control_pb2.LabelDeviceRequest, context: grpc.ServicerContext
    ) -> control_pb2.Device:
        added, removed = write_labels(request.labels), ", ".join(request.removed)
        changes = [f"add {added!r}"] * bool(added) + [f"remove {removed!r}"] * bool(removed)
        details = f"labels of device {request.device!r}: {' and '.join(changes) or 'no change'}"
        async with self._change(context, "LabelDevice", details):
            device = await self._admin.label_device(request.device, dict(request.labels), list(request.removed))
        return to_message(control_pb2.Device, device)

    async def CreateToken(
        self, request: control_pb2.CreateTokenRequest, context: grpc.ServicerContext
    ) -> control_pb2.NewToken:
        devices = f"device {request.device!r}" if request.device else count(request.uses, "device")
        details = f"create a join token for {devices}, valid for {request.valid_seconds / 3600:g} h"
        caller = self._require(context, "CreateToken", details)
        async with self._change(context, "CreateToken", details) as change:
            if self._enrolment is None:
                raise WrongState("this coordinator runs with --insecure: devices need no join token")
            token, record = await asyncio.to_thread(
                self._enrolment.create_token,
                request.uses,
                request.valid_seconds,
                device=request.device,
                operator=caller.name,
            )
            change.details += f": {record.id}"
        new = NewToken(token=str(token), expires=record.expires, id=record.id)
        return to_message(control_pb2.NewToken, new)

    async def ListTokens(
        self, request: control_pb2.ListTokensRequest, context: grpc.ServicerContext
    ) -> control_pb2.ListTokensReply:
        self._require(context, "ListTokens")
        return control_pb2.ListTokensReply(
            tokens=[to_message(control_pb2.Token, token) for token in await self._admin.tokens()]
        )

    async def RevokeToken(
        self, request: control_pb2.RevokeTokenRequest, context: grpc.ServicerContext
    ) -> control_pb2.Token:
        async with self._change(context, "RevokeToken", f"revoke the join token {request.id!r}"):
            return to_message(control_pb2.Token, await self._admin.revoke_token(request.id))

    def _require_certificates(self, verb: str) -> None:
        if self._enrolment is None:
            raise WrongState(
                f"this coordinator runs with --insecure: there are no certificates, so it cannot {verb} a device"
            )
