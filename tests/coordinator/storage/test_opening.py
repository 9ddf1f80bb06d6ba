"""Opening of a coordinator's storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import Corrupt
from tests.support import coordinator
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_an_empty_database_in_a_used_directory_is_rejected(state: Path) -> None:
    with coordinator.coordinator_in_process(state):
        pass
    (state / "coordinator.db").write_bytes(b"")
    with refused(Corrupt, "database"), open_storage(state):
        pass
