"""The administration of devices and join tokens, independent of the transport. The Control service calls this."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from moonfed.control.devices import Device, Token
from moonfed.coordinator.api.operator_api import with_presence
from moonfed.coordinator.devices.registry_poll import RegistryPoll
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.transport.identity import require_name


class AdminApi:
    """Devices and join tokens. A change is durable, and in effect at this replica, when the call returns."""

    def __init__(self, registry: DeviceRegistry, poll: RegistryPoll, sessions: Sessions) -> None:
        self._registry = registry
        self._poll = poll
        self._sessions = sessions

    async def device(self, device: str) -> Device:
        """Return one device with its certificates; raises NotFound."""
        return with_presence(await asyncio.to_thread(self._registry.device, device), self._sessions)

    async def revoke_device(self, device: str) -> Device:
        """Reject all certificates of a device, which returns only with a token for it; raises NotFound."""
        return await self._changed(await asyncio.to_thread(self._registry.revoke, device))

    async def remove_device(self, device: str) -> None:
        """Forget a device, and reject its certificates; rounds keep its name. Raises NotFound."""
        await asyncio.to_thread(self._registry.remove, device)
        await self._poll.refresh()

    async def rename_device(self, device: str, name: str) -> Device:
        """Rename a device; raises NotFound, or AlreadyExists if the name is taken."""
        require_name("name", name)
        return await self._changed(await asyncio.to_thread(self._registry.rename, device, name))

    async def label_device(self, device: str, labels: Mapping[str, str], removed: Collection[str]) -> Device:
        """Set and remove operators' labels of a device; raises NotFound, or InvalidInput for too many labels."""
        return await self._changed(await asyncio.to_thread(self._registry.label, device, labels, removed))

    async def tokens(self) -> list[Token]:
        """Return all join tokens, oldest first."""
        return await asyncio.to_thread(self._registry.tokens)

    async def revoke_token(self, token_id: str) -> Token:
        """Revoke a join token; the devices that enrolled with it stay. Raises NotFound."""
        return await asyncio.to_thread(self._registry.revoke_token, token_id)

    async def _changed(self, device: Device) -> Device:
        await self._poll.refresh()
        return with_presence(device, self._sessions)
