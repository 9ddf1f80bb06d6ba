from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.edge_client.conftest import PROGRAM, Bundle, Device
from tests.support.device_coordinator import Coordinator
from tests.support.forked_process import PATCHES


def test_other_users_cannot_read_what_a_device_stores(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.enrol()
    device.state.chmod(0o755)
    coordinator.assign(bundle.assignment())
    device.start(samples)
    coordinator.wait_for_update()
    code, log = device.stop()
    assert code == 0
    assert f"other users could read {device.state} (mode 755)" in log
    modes = {path: path.stat().st_mode & 0o777 for path in (device.state, *device.state.rglob("*"))}
    assert len(modes) > 5
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_a_device_that_cannot_isolate_plans_refuses_to_train_unless_told(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.old_kernel")
    device.start(samples, "--sandbox", "strict")
    code, log = device.finish()
    assert code == 2, "which the service does not restart"
    assert log.startswith("moonfed-client: sandbox is 'strict'; it must be 'weak' or 'off' on this machine, because ")
    assert log.count("\n") == 1
    assert not coordinator.connect_requests
    coordinator.assign(bundle.assignment())
    device.start(samples, "--sandbox", "weak")
    coordinator.wait_for_update()
    assert coordinator.connect_requests[0].labels["sandbox"] == "weak"


def test_a_device_whose_state_plans_could_read_refuses_to_train(device: Device, samples: Path) -> None:
    device.start(samples, "--sandbox", "strict", "--state", "/usr/local/moonfed-device")
    code, log = device.finish()
    assert code == 2
    assert log == (
        "moonfed-client: state is '/usr/local/moonfed-device'; it must be outside /usr, which plans may read "
        "(docs: errors/invalid-input)\n"
    )


def test_a_device_that_is_not_enrolled_leaves_nothing_behind(
    tmp_path: Path, samples: Path, forked_programs: None
) -> None:
    state = tmp_path / "new"
    command = [str(PROGRAM), "run", "--data", str(samples), "--state", str(state), "--sandbox", "off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "holds no identity" in done.stderr) == (3, True)
    assert not state.exists()
