"""Certificates that are no longer accepted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from moonfed.coordinator.rpc import revocations
from moonfed.coordinator.rpc.revocations import Revocations
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.storage.opening import open_storage
from moonfed.identity import Certificate

NOW = 1_700_000_000.0


class Registry(DeviceRegistry):
    """A registry whose answers a test sets."""

    def __init__(self) -> None:
        self.answers: list[frozenset[str] | Exception] = []
        self.asked = 0

    def revoked(self) -> frozenset[str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clocks:
    """A wall clock, which may jump, and a monotonic one."""

    wall, monotonic = NOW, 100.0

    def revocations(self, registry: DeviceRegistry) -> Revocations:
        return Revocations(registry, lambda: self.wall, lambda: self.monotonic)


def certificate(name: str = "cam-1", expires: float = NOW + 3600.0) -> Certificate:
    return Certificate(role="device", name=name, serial="1f", expires=expires)


def test_a_certificate_is_rejected_once_it_has_expired() -> None:
    clocks = Clocks()
    made = clocks.revocations(Registry())
    assert made.rejection(certificate()) is None
    clocks.wall += 3600.0
    clocks.monotonic += 3600.0
    reason = made.rejection(certificate())
    assert reason == "the certificate 1f of device 'cam-1' expired on 2023-11-14 23:13 UTC; it must enrol again"


@pytest.mark.parametrize("jump", [-(10**9), 10**9])
def test_a_wall_clock_that_jumps_expires_nothing(jump: float) -> None:
    clocks = Clocks()
    made = clocks.revocations(Registry())
    clocks.wall += jump
    clocks.monotonic += 60.0
    assert made.rejection(certificate()) is None


def test_a_revoked_devices_certificate_is_rejected_and_an_operators_of_that_name_is_not() -> None:
    registry = Registry()
    registry.answers = [frozenset({"cam-1"})]
    made = Clocks().revocations(registry)
    assert made.rejection(certificate()) is None
    asyncio.run(made.refresh())
    assert made.rejection(certificate()) == "the certificate 1f of device 'cam-1' was revoked by an operator"
    assert made.rejection(certificate("cam-2")) is None
    operator = Certificate(role="operator", name="cam-1", serial="1f", expires=NOW + 3600.0)
    assert made.rejection(operator) is None


def test_while_the_registry_cannot_be_read_what_is_known_applies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(revocations, "REFRESH_SECONDS", 0.01)
    registry = Registry()
    away = OSError("the disk is away")
    registry.answers = [frozenset({"cam-1"}), away, away, away, frozenset({"cam-2"})]
    made = Clocks().revocations(registry)

    async def scenario() -> None:
        task = asyncio.create_task(made.keep_fresh())
        while registry.asked < 3:
            await asyncio.sleep(0.01)
        assert made.rejection(certificate())
        while not made.rejection(certificate("cam-2")):
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
    assert caplog.text.count("cannot read the revoked devices") == 1


def test_the_registry_knows_who_is_revoked(tmp_path: Path) -> None:
    with open_storage(tmp_path / "state") as storage:
        registry = storage.store.devices
        registry.add_token("hash", 2, time.time() + 60.0)
        for device in ("cam-1", "cam-2"):
            assert registry.enrol(device, f"key of {device}", "hash", time.time() + 60.0)
        assert registry.revoked() == frozenset()
        revoke(storage.directory.database, "cam-2")
        assert registry.revoked() == {"cam-2"}


def revoke(database: Path, device: str) -> None:
    """Mark a device's row, as another process would."""
    import sqlite3

    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE devices SET revoked = 1.0 WHERE device = ?", [device])
    connection.close()
