from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from moonfed.coordinator.metrics.fleet_state import FleetState
from moonfed.coordinator.metrics.state_collector import StateCollector, StorageState
from moonfed.coordinator.storage.usage import Usage
from moonfed.errors import Unavailable

FLEET = FleetState(online=7, eligible=5, attempt=3, runs={"driven": 2, "followed": 1})
USAGE = Usage(blobs=4, blob_bytes=400, state_bytes=5000, free_bytes=60_000)
STORAGE = StorageState(usage=USAGE, registered=9, revoked=1, replicas=2, leases=3, epsilon=1.42)


class States:
    """A fleet and a storage, which may be unavailable."""

    def __init__(self) -> None:
        self.problem: Exception | None = None

    def storage(self) -> StorageState:
        if self.problem:
            raise self.problem
        return STORAGE


def registry(states: States, budget: int | None = None) -> CollectorRegistry:
    made = CollectorRegistry()
    collector = StateCollector(
        fleet=lambda: FLEET, storage=states.storage, expiries={"server": 1e9}, disk_budget=budget
    )
    made.register(collector)
    return made


def test_the_state_is_read_at_each_scrape() -> None:
    found = registry(States(), budget=10_000)
    values = {sample.name: sample.value for metric in found.collect() for sample in metric.samples}
    assert values["moonfed_devices_online"] == 7
    assert values["moonfed_devices_eligible"] == 5
    assert values["moonfed_devices_registered"] == 9
    assert values["moonfed_devices_revoked"] == 1
    assert values["moonfed_round_attempt"] == 3
    assert values["moonfed_replicas"] == 2
    assert values["moonfed_leases"] == 3
    assert values["moonfed_run_privacy_epsilon"] == 1.42
    assert values["moonfed_blob_bytes"] == 400
    assert values["moonfed_state_bytes"] == 5000
    assert values["moonfed_disk_free_bytes"] == 60_000
    assert values["moonfed_disk_budget_bytes"] == 10_000
    assert values["moonfed_storage_readable"] == 1
    assert found.get_sample_value("moonfed_runs", {"role": "driven"}) == 2
    assert found.get_sample_value("moonfed_runs", {"role": "suspended"}) == 0
    assert found.get_sample_value("moonfed_certificate_expiry_timestamp_seconds", {"certificate": "server"}) == 1e9


def test_a_budget_that_is_not_set_is_absent() -> None:
    assert registry(States()).get_sample_value("moonfed_disk_budget_bytes") is None


def test_unreadable_storage_leaves_the_rest_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    states = States()
    found = registry(states)
    states.problem = Unavailable("the database is away")
    for _ in range(3):
        assert found.get_sample_value("moonfed_storage_readable") == 0
        assert found.get_sample_value("moonfed_replicas") is None
        assert found.get_sample_value("moonfed_devices_online") == 7
    assert len(caplog.records) == 1
    assert "the database is away" in caplog.text
    states.problem = None
    assert found.get_sample_value("moonfed_replicas") == 2
