"""Polling of the registries, so that every replica applies revocations and labels from any replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moonfed.coordinator.storage.registry_view import RegistryView, RegistryViews
from moonfed.coordinator.support.polling import poll
from moonfed.coordinator.support.tasks import in_thread

POLL_SECONDS = 0.4
Subscriber = Callable[[RegistryView], Awaitable[None]]
_log = logging.getLogger(__name__)


class RegistryPoll:
    """Passes each version of the registry to its subscribers, in their order. Lives on one event loop."""

    def __init__(self, registry: RegistryViews) -> None:
        self._registry, self._subscribers = registry, list[Subscriber]()
        self._version = -1
        self._refreshing = asyncio.Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass later versions to a subscriber."""
        self._subscribers.append(subscriber)

    async def refresh(self) -> None:
        """Read the registry if its version has changed; a version that a subscriber fails to apply is read again."""
        async with self._refreshing:
            if await in_thread(self._registry.version) == self._version:
                return
            view = await in_thread(self._registry.load)
            for apply in self._subscribers:
                await apply(view)
            self._version = view.version

    async def run(self) -> None:
        """Refresh forever; while the registry cannot be read, the last known state applies."""
        problem = "cannot read the revoked certificates; those already known stay revoked"
        await poll(self.refresh, POLL_SECONDS, _log, problem)
