"""Draws of devices by a run's secret."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, strategies

from moonfed.coordinator.draw import Draw

DEVICES = [f"cam-{number}" for number in range(8)]
secrets = strategies.binary(min_size=32, max_size=32)


def test_it_is_hmac_sha256_of_purpose_and_device() -> None:
    for secret in (bytes(32), bytes(range(32)), b"\xff" * 32):
        expected = hmac.new(secret, b"3/1/cam-7", hashlib.sha256).digest()
        assert Draw(secret).digest("3/1", "cam-7") == expected


@given(secrets, strategies.permutations(DEVICES), strategies.integers(1, 99), strategies.integers(1, 9))
def test_the_same_secret_gives_the_same_draw(secret: bytes, devices: list[str], round_: int, attempt: int) -> None:
    purpose = f"{round_}/{attempt}"
    assert Draw(secret).order(purpose, devices) == Draw(bytes(secret)).order(purpose, DEVICES)


@given(secrets, secrets)
def test_other_secrets_purposes_and_devices_give_other_numbers(one: bytes, other: bytes) -> None:
    draw = Draw(one)
    found = {draw.digest(purpose, device) for purpose in ("1/1", "1/2", "2/1", "1/prototype 1") for device in DEVICES}
    assert len(found) == 4 * len(DEVICES)
    if one != other:
        assert not found & {Draw(other).digest("1/1", device) for device in DEVICES}


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_of_another_length_is_refused(secret: bytes) -> None:
    with pytest.raises(ValueError, match="it must have 32"):
        Draw(secret)


def test_its_text_does_not_show_the_secret() -> None:
    for secret in (b"s" * 32, bytes(range(32)), b"\x00\xff" * 16):
        shown = f"{Draw(secret)!r} {Draw(secret)}"
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown
