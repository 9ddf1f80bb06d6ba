"""The running runs of one coordinator: those whose files are unavailable resume later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import fleet_in
from tests.support.coordinator import ask
from tests.support.transient_failures import AWAY, TransientFailure

Until = Callable[[Callable[[], bool]], None]


def test_a_run_with_unavailable_files_at_start_resumes_once_they_are_available(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonfed.coordinator.runs.manager.RETRY_SECONDS", 0.05)
    with fleet_in(tmp_path) as fleet:
        fleet.start("run", minimum_devices=2)
    trouble = TransientFailure(monkeypatch, BlobDirectory, "verified_path", AWAY)
    trouble.lasts.set()
    with fleet_in(tmp_path) as fleet:
        (listed,) = ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
        assert listed.waiting == "run 'run' cannot resume yet; try again"
        assert listed.status == "running"
        trouble.lasts.clear()
        until(lambda: fleet.operator.run("run").waiting.startswith("waiting for 2 more devices"))
