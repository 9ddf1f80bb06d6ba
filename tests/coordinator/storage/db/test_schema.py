from __future__ import annotations

import pytest

from moonfed.coordinator.storage.db.migration import Migration
from moonfed.coordinator.storage.db.schema import announcement


def migration(number: int, summary: str, readable_from: int = 0) -> Migration:
    return Migration(revision=f"{number:04}", summary=summary, readable_from=readable_from, upgrade=lambda: None)


EXPAND, CONTRACT = migration(2, "Add notes to runs"), migration(3, "Drop names", 2)


@pytest.mark.parametrize(
    ("migrations", "changes", "going_back"),
    [
        ([EXPAND], "schema 2 for moonfed", "add notes to runs (0002); going back needs no restore"),
        ([EXPAND, CONTRACT], "schema 3 for moonfed", "drop names (0003); going back to a release of a schema below 2"),
    ],
)
def test_an_operator_is_told_what_changes_and_what_going_back_needs(
    migrations: list[Migration], changes: str, going_back: str
) -> None:
    told = announcement("coordinator.db", migrations)
    assert changes in told
    assert going_back in told
