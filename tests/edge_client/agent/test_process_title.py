"""The process title names the device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.edge_client.conftest import Device
from tests.support.device_coordinator import Coordinator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="titles are set through Linux's /proc")


def test_the_title_of_a_running_device_names_it(
    coordinator: Coordinator, device: Device, samples: Path, hasty_programs: None
) -> None:
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    assert device.process
    assert psutil.Process(device.process.pid).cmdline()[0] == "moonfed-client: cam-1"


def test_a_title_that_is_too_long_is_cut() -> None:
    code = (
        "from pathlib import Path; from moonfed.edge_client.agent.process_title import set_process_title\n"
        "before = Path('/proc/self/cmdline').read_bytes(); set_process_title('x' * 10_000)\n"
        "after = Path('/proc/self/cmdline').read_bytes()\n"
        "assert after == b'x' * (len(before) - 1) + b'\\0', (before, after)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
