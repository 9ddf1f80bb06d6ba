from __future__ import annotations

import pytest

from moonfed.experiments.fleet import preparation
from tests.support.compiled import device_bundle


@pytest.fixture(autouse=True)
def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let simulations of this process share bundles, without graphs; programs that are started build their own."""
    monkeypatch.setattr(preparation, "build_bundle", device_bundle)
