from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import SAMPLES, Coordinators, enrol_all


@pytest.fixture
def coordinators(tmp_path: Path) -> Iterator[Coordinators]:
    """A state directory with an enrolled fleet; nobody serves it yet."""
    made = Coordinators(tmp_path)
    try:
        made.serve()
        enrol_all(made, list(SAMPLES))
        made.kill()
        yield made
    finally:
        made.kill()
