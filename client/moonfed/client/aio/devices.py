"""The asynchronous client's calls about devices and join tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from moonfed.client.aio.caller import AsyncCaller
from moonfed.client.calls import devices as calls
from moonfed.client.records.devices import Device, NewToken, Token


class AsyncDeviceCalls(AsyncCaller):
    """Devices and the join tokens with which they enrol."""

    async def devices(
        self, *, labels: Mapping[str, str] | None = None, online: bool = False, ineligible: str = ""
    ) -> list[Device]:
        """List devices, sorted by name, that meet all conditions.

        `labels`: labels that a device must have. `online`: only devices that are online. `ineligible`: the name of a
        run, for only the devices that cannot take part in it; their field `ineligible` has the reason.

        Example:
            table = pandas.DataFrame(await coordinator.devices(labels={"site": "berlin"}))
        """
        return await self._do(calls.devices(labels or {}, online=online, ineligible=ineligible))

    async def device(self, device: str) -> Device:
        """Return one device, with its certificates; raises NotFound.

        Example:
            print((await coordinator.device("cam-1")).certificate_expires)
        """
        return await self._do(calls.device(device))

    async def revoke_device(self, device: str) -> Device:
        """Reject all certificates of a device at once. It can come back only with a join token made for it.

        Example:
            await coordinator.revoke_device("cam-1")
        """
        return await self._do(calls.revoke(device))

    async def remove_device(self, device: str) -> None:
        """Remove a device for good; runs keep the updates that they have counted.

        Example:
            await coordinator.remove_device("cam-1")
        """
        await self._do(calls.remove(device))

    async def rename_device(self, device: str, new_name: str) -> Device:
        """Rename a device, which fetches a certificate with its new name; its update in progress is lost.

        Example:
            await coordinator.rename_device("cam-1", "gate-north")
        """
        return await self._do(calls.rename(device, new_name))

    async def label_device(
        self, device: str, labels: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> Device:
        """Set labels of a device, which override those that it reports itself, and remove some that operators set.

        Example:
            await coordinator.label_device("cam-1", {"site": "berlin"}, remove=["tier"])
        """
        return await self._do(calls.label(device, labels or {}, remove))

    async def create_token(
        self, *, uses: int = 1, valid_hours: float = 24.0, device: str = "", trust: Path | None = None
    ) -> NewToken:
        """Create a join token, with which `uses` devices can enrol.

        `device`: a known device that is to return with another key; empty: new devices. `trust`: the trust file that
        the token contains, by default yours: the devices run bundles that its keys have signed, and no others.

        Example:
            print((await coordinator.create_token(uses=5)).token)
        """
        return await self._do(calls.create_token(uses, valid_hours, device, trust))

    async def tokens(self) -> list[Token]:
        """List the join tokens, without their secrets, oldest first.

        Example:
            usable = [token.id for token in await coordinator.tokens() if token.status == "valid"]
        """
        return await self._do(calls.tokens())

    async def revoke_token(self, id: str) -> Token:  # noqa: A002 - the field's name
        """Revoke a join token by its id, or the id's first six or more characters; enrolled devices stay.

        Example:
            await coordinator.revoke_token(token.id)
        """
        return await self._do(calls.revoke_token(id))
