from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from moonfed.coordinator.metrics.fleet_state import FleetState
from moonfed.coordinator.metrics.state_collector import MOST_RELEASES, StateCollector, StorageState, bounded
from moonfed.coordinator.storage.usage import Usage
from moonfed.errors import Unavailable

FLEET = FleetState(online=7, eligible=5, attempt=3, runs={"driven": 2, "followed": 1})
USAGE = Usage(blobs=4, blob_bytes=400, state_bytes=5000, free_bytes=60_000)
STORAGE = StorageState(
    usage=USAGE, registered=9, revoked=1, releases={"0.2.0": 8, "": 1}, replicas=2, leases=3, epsilon=1.42
)


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
    assert found.get_sample_value("moonfed_devices_by_release", {"release": "0.2.0"}) == 8
    assert found.get_sample_value("moonfed_devices_by_release", {"release": "other"}) == 1
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


def test_devices_cannot_make_series_by_reporting_releases() -> None:
    claimed = {"0.2.0": 90, "0.1.0": 7, "0.3.0rc1": 2, "cam-3": 1, "": 4, "0.2.0\n": 1, "9" * 40: 1}
    assert bounded(claimed) == {"0.2.0": 90, "0.1.0": 7, "0.3.0rc1": 2, "other": 7}
    many = bounded({f"0.{number}.0": 1 + (number == 77) for number in range(100)})
    assert (len(many), many["0.77.0"], sum(many.values())) == (MOST_RELEASES + 1, 2, 101)
