"""An operator's connection: wrong options are named before anything is sent."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from moonfed.client import Coordinator
from moonfed.errors import InvalidInput, NotFound, Untrusted
from tests.support.refusals import refused
from tests.support.tls_fleet import HOUR, Served


def opened(identity: Path, *, insecure: bool = False, address: str | None = None) -> None:
    Coordinator(identity, insecure=insecure, address=address).close()


def test_a_missing_identity_comes_with_advice(tmp_path: Path) -> None:
    advice = "is missing; `moonfed-coordinator serve` and `operator create` write one; name it with --identity or"
    with pytest.raises(NotFound, match=advice):
        opened(tmp_path / "operator")


def test_a_malformed_address_is_named_by_its_option(tmp_path: Path) -> None:
    with refused(InvalidInput, "coordinator", "hub"):
        opened(tmp_path, insecure=True, address="hub")


def test_plaintext_needs_no_identity_and_stays_on_this_machine(tmp_path: Path) -> None:
    opened(tmp_path, insecure=True)
    opened(tmp_path, insecure=True, address="127.0.0.1:9")
    with pytest.raises(InvalidInput, match="without TLS"):
        opened(tmp_path, insecure=True, address="hub.example:7443")


def test_an_expired_certificate_is_rejected_before_the_call(served: Served) -> None:
    opened(served.identity().directory)
    expired = served.identity(begins=-2 * HOUR, life=-datetime.timedelta(seconds=1)).directory
    with pytest.raises(Untrusted, match="expired"):
        opened(expired)
