"""The selection of `make quick`: its exclusions exist, and no part is excluded entirely."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SLOW

TESTS = Path(__file__).parent
WITHOUT_QUICK = {"benchmarks"}  # which test only that the benchmarks run


@pytest.mark.parametrize("path", SLOW)
def test_every_test_listed_as_slow_exists(path: str) -> None:
    file, _, function = path.partition("::")
    assert (TESTS.parent / file).exists()
    assert not function or f"def {function}(" in (TESTS.parent / file).read_text()


@pytest.mark.parametrize("part", sorted({path.parent.name for path in TESTS.glob("*/__init__.py")} - {"support"}))
def test_every_part_has_quick_tests(part: str) -> None:
    files = [str(file.relative_to(TESTS.parent)) for file in (TESTS / part).rglob("test_*.py")]
    assert (part in WITHOUT_QUICK) == all(file.startswith(SLOW) for file in files)
