"""The doctor against a real coordinator, a missing identity, and a machine that lacks what it needs."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from moonfed.edge_client.doctor import checks as doctor
from moonfed.edge_client.doctor.checks import Check, DoctorSettings, checks, healthy, line
from moonfed.sandbox import sandboxed_process
from moonfed.sandbox.sandboxed_process import START
from moonfed.transport import diagnosis as connection_diagnosis
from tests.edge_client.conftest import PROGRAM
from tests.support.authority import Authority
from tests.support.device_coordinator import Coordinator


def found(state: Path, **fields: Any) -> dict[str, Check]:
    return {check.name: check for check in checks(DoctorSettings(state=state, **fields))}


def test_a_healthy_device_passes_every_check(coordinator: Coordinator, device: Any, samples: Path) -> None:
    device.enrol()
    command = [str(PROGRAM), "doctor", "--state", str(device.state), "--data", str(samples)]
    reported = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    report = json.loads(reported.stdout)
    assert report["healthy"] is True
    by_name = {check["name"]: check for check in report["checks"]}
    assert {name for name, check in by_name.items() if check["status"] == "failed"} == set()
    assert by_name["coordinator"] == {"name": "coordinator", "status": "ok", "detail": f"{coordinator.address} answers"}
    assert by_name["certificate"]["detail"].startswith("cam-1, valid until ")
    assert by_name["data"] == {"name": "data", "status": "ok", "detail": str(samples)}
    assert re.search(r"runs a test model with .*CPU", by_name["onnxruntime"]["detail"])


def test_a_device_that_is_not_enrolled_fails_and_is_told_what_to_do(tmp_path: Path) -> None:
    process = subprocess.run([PROGRAM, "doctor", "--state", str(tmp_path / "none")], capture_output=True, text=True)
    assert process.returncode == 1
    assert "certificate  FAILED   " in process.stdout
    assert "enrol this device: moonfed-client enrol TOKEN" in process.stdout
    assert process.stderr == ""


def test_a_coordinator_that_is_away_or_of_another_authority_fails(
    coordinator: Coordinator,
    device: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_diagnosis, "RECHECK_SECONDS", 0.01)
    device.enrol(Authority())
    check = found(device.state)["coordinator"]
    assert check.status == "failed"
    assert "cannot prove that it is the coordinator that this identity belongs to" in check.detail
    coordinator.stop()
    assert found(device.state)["coordinator"].status == "failed"


def test_a_certificate_that_ends_soon_or_begins_later_is_reported(
    device: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device.enrol()
    today = datetime.now(timezone.utc)

    class Clock(datetime):
        moment = today

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return cls.moment

    monkeypatch.setattr(doctor, "datetime", Clock)
    monkeypatch.setattr(doctor, "SOON", timedelta(days=10_000))
    assert found(device.state)["certificate"].status == "warning"
    Clock.moment = today - timedelta(days=3650)
    check = found(device.state)["clock"]
    assert check.status == "failed"
    assert "but the certificate is valid only from" in check.detail


def test_missing_protection_is_a_warning_and_missing_data_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "landlock_version", lambda: 0)
    monkeypatch.setattr(doctor, "available_level", lambda: "weak")
    report = found(tmp_path, data=str(tmp_path / "none.npz"))
    assert report["sandbox"].status == "warning"
    assert report["sandbox"].detail.startswith("level weak: no Landlock")
    assert report["data"].status == "failed"
    assert not healthy(list(report.values()))
    assert line(report["data"]).startswith("data         FAILED ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("no /proc"), "no /proc"),
        (PermissionError(13, "Permission denied", "/proc/meminfo"), "/proc/meminfo: Permission denied"),
        (RuntimeError("no memory"), "RuntimeError: no memory"),
    ],
    ids=["sentence", "file", "other"],
)
def test_an_unexpected_error_is_a_failed_check(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise error

    monkeypatch.setattr(doctor, "host_available", broken)
    assert found(tmp_path)["memory"] == Check("memory", "failed", message)


def test_two_onnx_runtimes_that_overwrite_each_other_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnxruntime", "onnxruntime_gpu"):
        described = tmp_path / f"{name}-1.31.1.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name.replace('_', '-')}\nVersion: 1.31.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    check = found(tmp_path)["onnxruntime"]
    assert check.status == "failed"
    assert "uninstall both" in check.detail


def test_a_torch_that_cannot_be_imported_in_the_sandbox_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed_process, "START", "import sys; sys.modules['torch'] = None; " + START)
    report = found(tmp_path)
    assert {report["torch"].status, report["accelerator"].status} == {"failed"}
    assert "torch" in report["torch"].detail
