"""A synchronous run of three devices, for tests of its state machine and its status text."""

from __future__ import annotations

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.events import Event, UpdateAccepted

THREE = RunSettings(rounds=2, minimum_devices=3, quorum=Amount(count=2), deadline=100, heartbeat_timeout=10, seed=1)


def accepted(name: str, round_: int = 1, attempt: int = 1) -> Event:
    return UpdateAccepted(round=round_, attempt=attempt, device=name)
