"""The coordinator's domain, put together: a desk for devices and one for operators, over the runs that are served."""

from __future__ import annotations

import logging

from moonfed.coordinator.api.device_api import DeviceApi
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.replicas.presence import Presence
from moonfed.coordinator.replicas.replication import Replicated, Replication, Standalone
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.transfer import Transfers
from moonfed.errors import Unavailable

_log = logging.getLogger(__name__)


class Coordinator:
    """Runs and devices over an opened storage. Lives on one event loop."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._attendance, self._liveness, self._background = Sessions(), Liveness(), BackgroundTasks()
        here, uploads = (self._attendance, self._liveness, self._background), Transfers()
        self._runs = RunManager(storage, *here)
        self._replication = self._choose_replication()
        self.devices = DeviceApi(storage, self._runs, uploads, *here)
        self.operators = OperatorApi(storage, self._runs, uploads, self._attendance, self._background)

    async def open(self) -> None:
        """Resume the runs that were running when the coordinator ended."""
        await self._runs.open()
        await self._replication.start()
        self._background.spawn(in_thread(self.storage.garbage_collector.sweep))

    def _choose_replication(self) -> Replication:
        store = self.storage.store
        if store.leases.holder is None:
            return Standalone(self._runs)
        presence = Presence(store.online_devices, store.leases.holder, self._attendance, self._liveness)
        return Replicated(store, self._runs, presence, self._background)

    def dismiss(self) -> None:
        """The coordinator is about to stop: ends attendances and watches; nobody counts as lost for that."""
        reason = Unavailable("the coordinator is stopping")
        self._runs.dismiss(reason)
        self._attendance.close(reason)

    async def close(self) -> None:
        """Stops driving; what matters is durable already."""
        await self._background.close()
        try:
            await self._replication.stop()
        except Exception:  # the database is away: our leases end by themselves
            _log.exception("the leases of runs cannot be given back")
