from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.storage.db.migration import RELEASED, Migration, applicable
from moonfed.errors import WrongState
from tests.support.later_migrations import CONTRACTED, EXPANDED, later_migrations
from tests.support.refusals import refused


def migration(number: int, readable_from: int = 0) -> Migration:
    return Migration(revision=f"{number:04}", summary="Change it", readable_from=readable_from, upgrade=lambda: None)


EXPAND, CONTRACT, EXPAND_AGAIN = migration(2), migration(3, 2), migration(4)


@pytest.mark.parametrize(
    ("pending", "replicas", "now"),
    [
        ((EXPAND, CONTRACT), {}, (EXPAND, CONTRACT)),
        ((EXPAND, CONTRACT), {"a": 2, "b": 3}, (EXPAND, CONTRACT)),
        ((EXPAND, CONTRACT), {"a": 1, "b": 3}, (EXPAND,)),
        ((CONTRACT,), {"a": 1}, ()),
        ((EXPAND,), {"a": 1}, (EXPAND,)),
        ((EXPAND, CONTRACT, EXPAND_AGAIN), {"a": 2}, (EXPAND, CONTRACT, EXPAND_AGAIN)),
    ],
)
def test_a_contraction_waits_for_replicas_of_older_releases(
    pending: tuple[Migration, ...], replicas: dict[str, int], now: tuple[Migration, ...]
) -> None:
    assert tuple(applicable(pending, replicas)) == now


def test_what_this_release_needs_cannot_wait() -> None:
    with refused(WrongState, "replica", "b"):
        applicable((EXPAND, CONTRACT, EXPAND_AGAIN), {"a": 2, "b": 1})


def test_migrations_are_found_in_order(tmp_path: Path) -> None:
    migrations = later_migrations(tmp_path)
    assert migrations.newest == CONTRACTED
    assert [each.number for each in migrations.after(RELEASED.newest)] == [EXPANDED, CONTRACTED]
    assert [each.readable_from for each in migrations.after(RELEASED.newest)] == [0, EXPANDED]
    assert [each.number for each in migrations.after(EXPANDED)] == [CONTRACTED]
    assert migrations.after(CONTRACTED) == ()
    assert [each.number for each in RELEASED.after(0)] == list(range(1, RELEASED.newest + 1))
