"""A run's secret as tests read it, where it may have leaked to, and the draw that follows from it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

RECEIVED_FILE = "RECEIVED_MESSAGES_OF_TESTS"  # the environment variable of tests.support.received_messages


def secret_of(state: Path, run: str) -> bytes:
    """Read a run's secret from the SQLite database in a state directory."""
    with closing(sqlite3.connect(state / "coordinator.db")) as connection:
        (found,) = connection.execute("SELECT secret FROM draws WHERE run = ?", (run,)).fetchone()
    assert isinstance(found, bytes)
    assert len(found) == 32
    return found


def forms(secret: bytes) -> dict[str, bytes]:
    """Return the forms in which a program might reveal a secret."""
    plain, url_safe = base64.b64encode(secret).rstrip(b"="), base64.urlsafe_b64encode(secret).rstrip(b"=")
    return {
        "raw": secret,
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "base64": plain,
        "base64url": url_safe,
        "repr": repr(secret)[2:-1].encode(),
        "list": str(list(secret))[1:-1].encode(),
        "number": str(int.from_bytes(secret, "big")).encode(),
    }


def cohort_of(secret: bytes, round_: int, attempt: int | str, devices: Iterable[str], size: int) -> list[str]:
    """Compute a cohort, sorted by name, from the secret; or what is drawn for another purpose than an attempt."""

    def rank(device: str) -> bytes:
        return hmac.new(secret, f"{round_}/{attempt}/{device}".encode(), hashlib.sha256).digest()

    return sorted(sorted(devices, key=rank)[:size])


def public_cohort_of(seed: int, round_: int, attempt: int, devices: Iterable[str], size: int) -> list[str]:
    """Compute a cohort from what every device knows, as cohorts were drawn when no secret was involved."""

    def rank(device: str) -> bytes:
        return hashlib.sha256(f"{seed}/{round_}/{attempt}/{device}".encode()).digest()

    return sorted(sorted(devices, key=rank)[:size])
