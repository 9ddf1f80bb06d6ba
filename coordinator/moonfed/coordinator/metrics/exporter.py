"""The exporter: a coordinator's registry of metrics, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from prometheus_client import CollectorRegistry, ProcessCollector

from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.metrics.endpoint import serving
from moonfed.coordinator.metrics.fleet_state import FleetState, FleetStates
from moonfed.coordinator.metrics.instruments import Instruments
from moonfed.coordinator.metrics.recorder import MetricsRecorder
from moonfed.coordinator.metrics.state_collector import StateCollector, StorageState
from moonfed.coordinator.privacy.budget import spent
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.storage.usage import UsageMeter
from moonfed.errors import Unavailable
from moonfed.files import fsyncs_observed

SCRAPE_SECONDS = 5.0  # within which the event loop must answer a scrape
CERTIFICATES = {"authority": "ca.pem", "server": "server.pem"}


class Exporter:
    """The metrics of one coordinator."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self.registry = storage, CollectorRegistry()
        self.recorder = MetricsRecorder(Instruments(self.registry), storage.store.encoding_of)
        ProcessCollector(registry=self.registry)
        storage.store.observe(self.recorder)

    @contextmanager
    def serving(self, coordinator: Coordinator, host: str, port: int) -> Iterator[int]:
        """Export the metrics of a coordinator, on whose event loop this is called; yield the port."""
        loop, states = asyncio.get_running_loop(), FleetStates(coordinator)

        def fleet() -> FleetState:
            try:
                return asyncio.run_coroutine_threadsafe(states.read(), loop).result(SCRAPE_SECONDS)
            except FutureTimeout as error:
                raise Unavailable(f"the coordinator did not answer within {SCRAPE_SECONDS:g} s") from error

        store = self._storage.store
        usage = UsageMeter(self._storage.directory.root, store.blob_totals)

        def storage() -> StorageState:
            replicas = store.online_devices.replicas() if store.leases.holder else 1
            registered, revoked = store.devices.totals()
            return StorageState(
                usage=usage.measure(),
                registered=registered,
                revoked=revoked,
                releases=store.devices.by_release(),
                replicas=replicas,
                leases=len(store.leases.held()),
                epsilon=highest_epsilon(store),
            )

        collector = StateCollector(
            fleet=fleet,
            storage=storage,
            expiries=expiries(self._storage.directory.authority),
            disk_budget=self._storage.budget.limit,
        )
        self.registry.register(collector)
        coordinator.runs.round_observers.append(self.recorder.round_ended)
        with fsyncs_observed(self.recorder.fsynced), serving(self.registry, fleet, host, port) as opened:
            yield opened


def highest_epsilon(store: Store) -> float:
    """Return the highest epsilon that a run which has not ended has spent; 0 if none has privacy. Blocking."""
    private = [record for record in store.runs() if record.active and record.settings.private]
    totals = store.privacy.of_runs(private)
    found = (spent(record.settings, totals[record.run]) for record in private)
    return max((one.epsilon for one in found if one), default=0.0)


def expiries(authority: Path) -> dict[str, float]:
    """Return when the certificates in the authority's directory expire; none if the coordinator runs without TLS."""
    files = {name: authority / file for name, file in CERTIFICATES.items()}
    return {
        name: x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
        for name, file in files.items()
        if file.is_file()
    }
