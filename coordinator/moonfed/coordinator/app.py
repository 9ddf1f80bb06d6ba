"""The composition root: a coordinator's runs, devices, updates and APIs over its storage."""

from __future__ import annotations

import logging

from moonfed.coordinator.api.admin_api import AdminApi
from moonfed.coordinator.api.device_api import DeviceApi
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.api.release_api import ReleaseApi
from moonfed.coordinator.devices.blob_access import BlobAccess
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.registry_poll import RegistryPoll
from moonfed.coordinator.devices.release_targets import ReleaseTargets
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.replicas.presence import Presence
from moonfed.coordinator.replicas.replication import Replicated, Replication, Standalone
from moonfed.coordinator.runs.evaluations import Evaluations
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.late_updates import LateUpdates
from moonfed.coordinator.updates.submission import Updates
from moonfed.coordinator.updates.transfer import Transfers
from moonfed.errors import Unavailable

_log = logging.getLogger(__name__)


class Coordinator:
    """The runs, devices and updates of one opened storage. Lives on one event loop."""

    def __init__(self, storage: Storage, observer: Observer = SILENT) -> None:
        self.storage = storage
        self.sessions = Sessions()
        self._liveness = Liveness()
        self._background = BackgroundTasks()
        transfers = Transfers()
        self.runs = RunManager(storage, self.sessions, self._liveness, self._background, observer)
        self._evaluations = Evaluations(storage, self.sessions, self._background)
        self._replication = self._choose_replication()
        self.registry = RegistryPoll(storage.store.registry)
        self.release_targets = ReleaseTargets(storage.store.deployments, self.sessions)
        self.devices = DeviceApi(
            blobs=storage.blobs,
            access=BlobAccess(storage.store, self.sessions),
            registry=storage.store.devices,
            runs=self.runs,
            evaluations=self._evaluations,
            sessions=self.sessions,
            liveness=self._liveness,
            background=self._background,
            releases=self.release_targets,
            observer=observer,
        )
        self.releases = ReleaseApi(storage, self.sessions, self._background)
        self.updates = Updates(
            find_run=self.runs.find,
            reports=storage.store.reports,
            spool=storage.spool,
            blobs=storage.blobs,
            budget=storage.budget,
            transfers=transfers,
            background=self._background,
            observer=observer,
            late=LateUpdates(storage.store.outcomes, self._background),
        )
        self.operators = OperatorApi(
            store=storage.store,
            blobs=storage.blobs,
            budget=storage.budget,
            garbage_collector=storage.garbage_collector,
            runs=self.runs,
            evaluations=self._evaluations,
            transfers=transfers,
            sessions=self.sessions,
            background=self._background,
        )

        self.admin = AdminApi(storage.store.devices, self.registry, self.sessions)

    async def open(self) -> None:
        """Resume the runs that were running when the coordinator ended."""
        await self.runs.open()
        await self._replication.start()
        self._evaluations.open()
        self._background.spawn(in_thread(self.storage.garbage_collector.sweep))

    async def failure(self) -> None:
        """Wait until this coordinator must not go on, then raise the reason."""
        await self._replication.failure()

    def _choose_replication(self) -> Replication:
        store = self.storage.store
        if store.leases.holder is None:
            return Standalone(self.runs)
        presence = Presence(store.online_devices, store.leases.holder, self.sessions, self._liveness)
        return Replicated(store, self.runs, presence, self._background)

    def dismiss(self) -> None:
        """Prepare to stop: end sessions and subscriptions, without counting devices as lost."""
        reason = Unavailable("the coordinator is stopping")
        self.runs.dismiss(reason)
        self.sessions.close(reason)

    async def close(self) -> None:
        """Stop driving runs; everything acknowledged is durable already."""
        await self._background.close()
        try:
            await self._replication.stop()
        except Exception:  # the database is unavailable: the leases expire
            _log.exception("cannot release the leases of this coordinator's runs")
