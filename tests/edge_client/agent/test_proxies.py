"""Devices that reach their coordinator through an HTTP proxy only."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.transport.join_token import JoinToken
from moonfed.transport.proxy import ignore_proxy_exceptions
from tests.edge_client.conftest import PROGRAM, Bundle, Device
from tests.support.authority import Authority
from tests.support.device_coordinator import PATIENCE, Coordinator
from tests.support.http_proxy import ConnectProxy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty_programs")]

PASSWORD = "me:s3cr3t"


@pytest.fixture(autouse=True)
def _everything_is_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclude everything from the proxy, as some companies' environments do; the option takes precedence."""
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def enrol(token: JoinToken, state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), "enrol", str(token), "--name", "cam-1", "--state", str(state), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_device_enrols_and_trains_through_a_proxy_with_a_password(
    coordinator: Coordinator, token: JoinToken, device: Device, bundle: Bundle, samples: Path
) -> None:
    with ConnectProxy(password=PASSWORD) as proxy:
        url = f"http://{PASSWORD}@{proxy.address}"
        done = enrol(token, device.state, "--proxy", url, "--json")
        assert done.returncode == 0, done.stderr
        assert set(proxy.asked) == {token.address}
        enrolled, asked = proxy.bytes_through, len(proxy.asked)
        assert enrolled > len(read_identity(device.state).certificate)

        device.start(samples, "--proxy", url)
        coordinator.assign(bundle.assignment())
        _, model = coordinator.wait_for_update()
        device.wait_for_log("submitted")
        assert set(proxy.asked[asked:]) == {coordinator.address}
        assert proxy.bytes_through - enrolled > len(bundle.plan) + len(bundle.weights) + len(model)
        for process in device.processes():
            assert "s3cr3t" not in " ".join(process.cmdline())
        for child in device.processes()[1:]:
            assert "s3cr3t" not in json.dumps(child.environ())
        code, log = device.stop()
        assert code == 0
        assert "s3cr3t" not in log


def test_a_renewed_certificate_goes_through_the_proxy_as_well(
    coordinator: Coordinator, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ignore_proxy_exceptions().items():
        monkeypatch.setenv(name, value)
    device.enrol()
    identity = read_identity(device.state)
    with ConnectProxy() as proxy:
        link = FleetConnection(identity.address, identity.name, identity, proxy=f"http://{proxy.address}")
        link.reopen(identity)
        assert next(link.connect({}, 0, PATIENCE)).HasField("welcome")
        assert proxy.asked == [coordinator.address]
        link.close()


def test_the_environments_proxy_serves_too(
    coordinator: Coordinator, device: Device, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy() as proxy:
        monkeypatch.setenv("https_proxy", f"http://{proxy.address}")
        monkeypatch.setenv("no_proxy", "example.org")
        device.start(samples)
        coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
        assert proxy.asked == [coordinator.address]


def test_a_proxy_that_rejects_is_named_and_waited_out(coordinator: Coordinator, device: Device, samples: Path) -> None:
    with ConnectProxy(status=403) as proxy:
        device.start(samples, "--proxy", f"http://{PASSWORD}@{proxy.address}")
        device.wait_for_log(f"the proxy at {proxy.address} refuses to connect to {coordinator.address}: status")
        proxy.status = 200
        device.wait_for_log("reconnected")
        assert "s3cr3t" not in device.stop()[1]


def test_enrolling_reports_that_the_proxy_requires_a_password(token: JoinToken, tmp_path: Path) -> None:
    with ConnectProxy(password=PASSWORD) as proxy:
        address = proxy.address
        done = enrol(token, tmp_path / "device", "--proxy", f"http://{address}")
    assert done.returncode == 10
    assert done.stderr.startswith(f"moonfed-client: the proxy at {address} requires a password (407)")
    assert done.stderr.endswith(" (docs: errors/unavailable)\n")


def test_a_proxy_does_not_bypass_authentication(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.enrol(authority=Authority())
    with ConnectProxy() as proxy:
        device.start(samples, "--proxy", f"http://{proxy.address}")
        code, log = device.finish()
    assert code == 5
    assert "that this identity" in log.splitlines()[-1]
