"""The metrics of a coordinator that serves, its endpoint, and their documentation."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from moonfed.blobs.schema import TensorSpec
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.errors import AlreadyExists
from moonfed.v1 import blob_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.faults.fleet import bundle_of, until
from tests.support.coordinator import WAIT, coordinator_in_process, model_bytes
from tests.support.prometheus import documented, exposed, scrape, value

PRIVATE = {
    "trusting": False,
    "privacy": {"epsilon": 90, "delta": 0.1, "noise_multiplier": 1.0},
    "cohort": 1,
    "population": 1,
    "quorum": 1,
    "clip_norm": 0.5,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with one committed round, and an update that is too late."""
    with fleet_in(tmp_path_factory.mktemp("served"), metrics_port=0, disk_budget=10**9) as fleet:
        device = fleet.device("cam-1")
        fleet.start("digits", 2)
        session = device.connect()
        work = session.assignment()
        request = blob_pb2.FetchRequest(device="cam-1", sha256=work.blobs["model"].sha256)
        assert list(device.fleet.Fetch(request, timeout=WAIT))
        device.submit(work, model_bytes(1.0))
        session.assignment()
        with pytest.raises(Exception, match="round 1"):
            device.submit(work, model_bytes(2.0))
        until(lambda: found(fleet, "rounds_total", outcome="committed") == 1)
        yield fleet


def found(fleet: Fleet, name: str, **labels: str) -> float:
    return value(fleet.ports.metrics or 0, name, **labels)


def test_a_round_is_counted_with_its_updates_and_bytes(served: Fleet) -> None:
    assert found(served, "rounds_total", outcome="committed") == 1
    assert found(served, "updates_total", outcome="accepted", reason="valid") == 1
    assert found(served, "transferred_bytes_total", direction="received", encoding="float32") == len(model_bytes(1.0))
    assert found(served, "transferred_bytes_total", direction="sent", encoding="float32") >= len(model_bytes(1.0))
    assert found(served, "reduction_memory_bytes_count") == 1
    for phase in PHASES:
        assert found(served, "round_phase_seconds_count", phase=phase) == 1
    assert found(served, "devices_online") == found(served, "devices_eligible") == 1
    assert found(served, "round_attempt") == 1
    assert found(served, "devices_by_release", release="other") == 1  # this device reports none
    assert found(served, "transaction_seconds_count") > 0
    assert found(served, "fsync_seconds_count") > 0
    assert found(served, "calls_total", method="Fleet/Submit", status="OK") == 1


def test_a_late_update_is_refused(served: Fleet) -> None:
    reasons = {
        reason: found(served, "updates_total", outcome="refused", reason=reason) for reason in ("late", "duplicate")
    }
    assert sum(reasons.values()) == 1, reasons


def test_the_highest_epsilon_of_runs_with_privacy_is_exposed(tmp_path: Path) -> None:
    with fleet_in(tmp_path, metrics_port=0) as fleet:
        assert found(fleet, "run_privacy_epsilon") == 0
        device = fleet.device("cam-1")
        fleet.start("private", 2, bundle=bundle_of(8), **PRIVATE)
        session = device.connect()
        device.submit(session.assignment(), model_bytes(1.0, (TensorSpec("weight", (8,), "parameter"),)))
        session.assignment()
        assert found(fleet, "run_privacy_epsilon") == fleet.operator.run("private").privacy.epsilon > 0


def test_the_table_in_the_documentation_is_what_is_exposed(served: Fleet) -> None:
    assert documented(of_devices=False) == exposed(scrape(served.ports.metrics or 0))


def test_a_coordinator_without_metrics_does_not_load_prometheus() -> None:
    code = "import sys, moonfed.coordinator.server; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(AlreadyExists, match=rf"cannot serve metrics on 127\.0\.0\.1:{port}: Address already in use"),
            coordinator_in_process(tmp_path / "state", metrics_port=port),
        ):
            pass


def test_a_scrape_through_ipv6(tmp_path: Path) -> None:
    options = {"metrics_port": 0, "metrics_host": "::1", "insecure": True}
    with (
        coordinator_in_process(tmp_path / "state", **options) as ports,
        urllib.request.urlopen(f"http://[::1]:{ports.metrics}/metrics", timeout=60) as reply,
    ):
        text = reply.read().decode()
    assert "moonfed_build_info" in text
    assert "moonfed_certificate_expiry" not in text  # there are none without TLS
