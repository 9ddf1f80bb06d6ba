"""The asynchronous client's calls about devices and join tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from moonfed.client.aio.connection import AsyncConnection
from moonfed.control.codec import from_message
from moonfed.control.devices import Device, NewToken, Token
from moonfed.errors import InvalidInput
from moonfed.labels import check_labels
from moonfed.signing.key_files import default_directory, ensure_keys, read_trust
from moonfed.transport.join_token import parse_token
from moonfed.v1 import control_pb2

HOUR = 3600


class AsyncDeviceCalls:
    """Devices and the join tokens with which they enrol."""

    connection: AsyncConnection

    async def devices(
        self, *, labels: Mapping[str, str] | None = None, online: bool = False, ineligible: str = ""
    ) -> list[Device]:
        """List devices, sorted by name, that meet all conditions.

        `labels`: labels that a device must have. `online`: only devices that are online. `ineligible`: the name of a
        run, for only the devices that cannot take part in it; their field `ineligible` has the reason.

        Example:
            table = pandas.DataFrame(await coordinator.devices(labels={"site": "berlin"}))
        """
        request = control_pb2.ListDevicesRequest(labels=labels or {}, online=online, ineligible=ineligible)
        return await self.connection.ask_all(Device, "ListDevices", request)

    async def device(self, device: str) -> Device:
        """Return one device, with its certificates; raises NotFound.

        Example:
            print((await coordinator.device("cam-1")).certificate_expires)
        """
        return await self.connection.ask(Device, "GetDevice", control_pb2.GetDeviceRequest(device=device))

    async def revoke_device(self, device: str) -> Device:
        """Reject all certificates of a device at once. It can come back only with a join token made for it.

        Example:
            await coordinator.revoke_device("cam-1")
        """
        return await self.connection.ask(Device, "RevokeDevice", control_pb2.RevokeDeviceRequest(device=device))

    async def remove_device(self, device: str) -> None:
        """Remove a device for good; runs keep the updates that they have counted.

        Example:
            await coordinator.remove_device("cam-1")
        """
        request = control_pb2.RemoveDeviceRequest(device=device)
        await self.connection.ask(control_pb2.RemoveDeviceReply, "RemoveDevice", request, once=True)

    async def rename_device(self, device: str, new_name: str) -> Device:
        """Rename a device, which fetches a certificate with its new name; its update in progress is lost.

        Example:
            await coordinator.rename_device("cam-1", "gate-north")
        """
        request = control_pb2.RenameDeviceRequest(device=device, name=new_name)
        return await self.connection.ask(Device, "RenameDevice", request, once=True)

    async def label_device(
        self, device: str, labels: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> Device:
        """Set labels of a device, which override those that it reports itself, and remove some that operators set.

        Example:
            await coordinator.label_device("cam-1", {"site": "berlin"}, remove=["tier"])
        """
        check_labels(labels or {})
        request = control_pb2.LabelDeviceRequest(device=device, labels=labels or {}, removed=list(remove))
        if not request.labels and not request.removed:
            raise InvalidInput("labels are missing; give some to set, or names to remove")
        return await self.connection.ask(Device, "LabelDevice", request)

    async def create_token(
        self, *, uses: int = 1, valid_hours: float = 24.0, device: str = "", trust: Path | None = None
    ) -> NewToken:
        """Create a join token, with which `uses` devices can enrol.

        `device`: a known device that is to return with another key; empty: new devices. `trust`: the trust file that
        the token contains, by default yours: the devices run bundles that its keys have signed, and no others.

        Example:
            print((await coordinator.create_token(uses=5)).token)
        """
        chain = read_trust(trust) if trust else ensure_keys(default_directory(), lambda _: None)
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=valid_hours * HOUR, device=device)
        new = await self.connection.ask(NewToken, "CreateToken", request)
        chain.verify()
        return replace(new, token=str(replace(parse_token(new.token), trust=chain)))

    async def tokens(self) -> list[Token]:
        """List the join tokens, without their secrets, oldest first.

        Example:
            usable = [token.id for token in await coordinator.tokens() if token.status == "valid"]
        """
        request, kind = control_pb2.ListTokensRequest(), control_pb2.ListTokensReply
        reply = await self.connection.ask(kind, "ListTokens", request)
        return [from_message(Token, message) for message in reply.tokens]

    async def revoke_token(self, id: str) -> Token:  # noqa: A002 - the field's name
        """Revoke a join token by its id, or the id's first six or more characters; enrolled devices stay.

        Example:
            await coordinator.revoke_token(token.id)
        """
        return await self.connection.ask(Token, "RevokeToken", control_pb2.RevokeTokenRequest(id=id))
