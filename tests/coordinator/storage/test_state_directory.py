"""The state directory's lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import WrongState

pytestmark = pytest.mark.slow


def test_one_coordinator_at_a_time(state: Path) -> None:
    with open_storage(state), pytest.raises(WrongState, match="another coordinator"), open_storage(state):
        pass
    with open_storage(state):
        pass
