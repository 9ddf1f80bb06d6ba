"""Metrics of a coordinator's state, read whenever it is scraped."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moonfed.coordinator.metrics.fleet_state import ROLES, FleetState
from moonfed.coordinator.storage.usage import Usage
from moonfed.coordinator.support.error_log import log_error
from moonfed.version import RELEASE

_log = logging.getLogger(__name__)
MOST_RELEASES, OTHER = 8, "other"
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,2}([.+-]?[a-z0-9]{1,12})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageState:
    """Facts from the database and the state directory."""

    usage: Usage
    registered: int  # devices
    revoked: int  # devices
    releases: Mapping[str, int]  # devices by the release that they reported
    replicas: int  # coordinators that share the database and are alive, this one included
    leases: int  # runs whose unexpired lease is this coordinator's
    epsilon: float = 0.0  # the highest that a run with privacy, which has not ended, has spent


class StateCollector(Collector):
    """Collects the state; while the storage cannot be read, its metrics are absent."""

    def __init__(
        self,
        *,
        fleet: Callable[[], FleetState],
        storage: Callable[[], StorageState],
        expiries: Mapping[str, float],
        disk_budget: int | None,
    ) -> None:
        """`fleet`, `storage`: read the state, blocking. `expiries`: of certificates, in seconds since the epoch."""
        self._fleet = fleet
        self._storage = storage
        self._expiries = expiries
        self._budget = disk_budget
        self._readable = True

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering the collector does not read the state."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Read the state."""
        yield _labelled("moonfed_build_info", "This coordinator's release; always 1", "version", {RELEASE: 1})
        yield from _fleet_metrics(self._fleet())
        if self._expiries:
            text = "Time at which a certificate of this coordinator expires"
            name = "moonfed_certificate_expiry_timestamp_seconds"
            yield _labelled(name, text, "certificate", self._expiries)
        if self._budget is not None:
            yield _gauge("moonfed_disk_budget_bytes", "Limit for the state directory (--disk-budget)", self._budget)
        yield from self._storage_metrics()

    def _storage_metrics(self) -> Iterable[Metric]:
        try:
            found = self._storage()
        except Exception as error:
            if self._readable:
                log_error(_log, "cannot read the storage for the metrics", error)
            self._readable = False
        else:
            self._readable = True
            yield from _usage_metrics(found)
        text = "1 if the last scrape could read the database and the state directory"
        yield _gauge("moonfed_storage_readable", text, float(self._readable))


def _fleet_metrics(found: FleetState) -> Iterable[Metric]:
    yield _gauge("moonfed_devices_online", "Devices connected to this coordinator", found.online)
    text = "Devices connected to this coordinator that may train one of its runs"
    yield _gauge("moonfed_devices_eligible", text, found.eligible)
    runs = {role: found.runs.get(role, 0) for role in ROLES}
    yield _labelled("moonfed_runs", "Running runs, by this coordinator's role in them", "role", runs)
    text = "Highest current attempt number among the runs that this coordinator drives"
    yield _gauge("moonfed_round_attempt", text, found.attempt)


def _usage_metrics(found: StorageState) -> Iterable[Metric]:
    usage = found.usage
    yield _gauge("moonfed_devices_registered", "Devices in the registry, which replicas share", found.registered)
    yield _gauge("moonfed_devices_revoked", "Revoked devices in the registry", found.revoked)
    text = "Devices in the registry by the release of moonfed that they reported last"
    yield _labelled("moonfed_devices_by_release", text, "release", bounded(found.releases))
    yield _gauge("moonfed_replicas", "Coordinators that share the database and are alive", found.replicas)
    yield _gauge("moonfed_leases", "Runs whose lease this coordinator holds in a shared database", found.leases)
    text = "Highest epsilon that a run which has not ended has spent; 0: none has differential privacy"
    yield _gauge("moonfed_run_privacy_epsilon", text, found.epsilon)
    yield _gauge("moonfed_blobs", "Blobs that runs and releases refer to", usage.blobs)
    yield _gauge("moonfed_blob_bytes", "Bytes of the blobs that runs and releases refer to", usage.blob_bytes)
    yield _gauge("moonfed_state_bytes", "Bytes of the files in the state directory", usage.state_bytes)
    yield _gauge("moonfed_disk_free_bytes", "Free bytes of the state directory's file system", usage.free_bytes)


def bounded(releases: Mapping[str, int]) -> Mapping[str, int]:
    """Return the most frequent releases, and all others as one, because devices can report what they like."""
    valid = Counter({release: number for release, number in releases.items() if _RELEASE.fullmatch(release)})
    kept = dict(sorted(valid.items(), key=lambda item: (-item[1], item[0]))[:MOST_RELEASES])
    return kept | {OTHER: sum(releases.values()) - sum(kept.values())}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        metric.add_metric([key], value)
    return metric
