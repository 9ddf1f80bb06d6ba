"""Devices with certificates in a registry, without any cryptography."""

from __future__ import annotations

import itertools
import time
from typing import Any

from moonfed.control.devices import Token
from moonfed.coordinator.storage.device_registry import DeviceRegistry, Issued
from moonfed.coordinator.storage.registry_view import RegistryView
from moonfed.formatting import moment
from moonfed.transport.identity import Certificate

_serials = itertools.count(1)
LATER = time.time() + 86400.0


def token_record(uses: int = 1, device: str = "", **fields: float) -> Token:
    now = time.time()
    times = {name: moment(value) for name, value in {"created": now, "expires": now + 60.0, **fields}.items()}
    return Token(id="", status="valid", operator="anna", uses=uses, uses_left=uses, device=device, **times)


def issued(key: str = "key", expires: float = LATER) -> Issued:
    """Return a certificate with a serial number of its own."""
    return Issued(serial=f"{next(_serials):x}", key_sha256=key, expires=expires)


def registry_view(**fields: Any) -> RegistryView:
    """Return a view of an empty registry, with these fields."""
    nothing = dict.fromkeys(("operators", "known", "revoked"), frozenset[str]())
    return RegistryView(**{"version": 1, "devices": {}, "labels": {}, **nothing, **fields})


def as_held(certificate: Issued, name: str) -> Certificate:
    """Return a certificate as its device shows it."""
    return Certificate(kind="device", name=name, serial=certificate.serial, expires=certificate.expires)


def enrolled(registry: DeviceRegistry, device: str, key: str = "") -> Certificate:
    """Enrol a device with a token of its own; `key`: by default one of its own."""
    secret = f"secret of {device} {next(_serials)}"
    registry.add_token(secret, token_record())
    made = issued(key or f"key of {device}")
    assert registry.enrol(device, made, secret)
    return as_held(made, device)
