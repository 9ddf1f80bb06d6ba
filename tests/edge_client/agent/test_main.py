from __future__ import annotations

from pathlib import Path

from tests.edge_client.conftest import Bundle, Device
from tests.support.device_coordinator import Coordinator


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
    assert f"other users could read {device.state} (mode 755); it is now private" in log
    modes = {path: path.stat().st_mode & 0o777 for path in (device.state, *device.state.rglob("*"))}
    assert len(modes) > 5
    assert {path for path, mode in modes.items() if mode & 0o077} == set()
