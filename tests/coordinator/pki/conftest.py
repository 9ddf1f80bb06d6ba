from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.transport.identity import new_key, signing_request


@pytest.fixture
def enrolment(tmp_path: Path) -> Iterator[Enrolment]:
    store = open_store(tmp_path / "coordinator.db")
    yield Enrolment(
        authority=Authority(tmp_path / "authority"),
        registry=store.devices,
        address="example.org:7444",
        certificate_life=timedelta(days=90),
    )
    store.close()


def request(name: str = "cam-1") -> bytes:
    return signing_request(new_key(), name)


def secret(enrolment: Enrolment, uses: int = 1, valid_seconds: float = 60.0) -> str:
    return enrolment.create_token(uses, valid_seconds)[0].secret
