from __future__ import annotations

import pytest

from moonfed.experiments.fleet import preparation
from tests.support.compiled import cached_bundle


@pytest.fixture(autouse=True)
def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let simulations of this process share their bundles; programs that are started compile their own."""
    monkeypatch.setattr(preparation, "build_bundle", cached_bundle)
