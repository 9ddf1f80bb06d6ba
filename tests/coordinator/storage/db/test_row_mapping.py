"""Conversion between database rows and records, through a real table of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import sqlalchemy as sql

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.storage.db import row_mapping, tables
from tests.support.store_records import FIRST, MODEL, RUN, update


@pytest.fixture
def connection() -> Iterator[sql.Connection]:
    engine = sql.create_engine("sqlite://")
    with engine.connect() as opened:
        tables.metadata.create_all(opened)
        yield opened
    engine.dispose()


def stored(connection: sql.Connection, table: sql.Table, row: dict[str, Any]) -> sql.RowMapping:
    connection.execute(sql.insert(table).values(row))
    return connection.execute(sql.select(table)).mappings().one()


@pytest.mark.parametrize(
    "report",
    [
        update("a"),
        DeviceReport(id=FIRST, device="a", outcome="declined", reason="busy"),
        DeviceReport(
            id=FIRST, device="a", outcome="accepted", blobs={"model": MODEL}, decoded={"model": ref_of_bytes(b"whole")}
        ),
    ],
)
def test_a_report_is_read_as_it_was_written(connection: sql.Connection, report: DeviceReport) -> None:
    assert row_mapping.report(stored(connection, tables.reports, row_mapping.report_row(report))) == report


def test_a_run_is_read_with_a_seed_beyond_63_bits(connection: sql.Connection) -> None:
    row = {
        "run": RUN.run,
        "metric": asdict(RUN.metric),
        "created": RUN.created,
        "status": RUN.status,
        "reason": RUN.reason,
        "settings": RUN.settings.to_document(),
        "method": RUN.method,
        **row_mapping.ref_columns("manifest", RUN.manifest),
        **row_mapping.ref_columns("initial", RUN.initial),
    }
    assert RUN.settings.seed == 2**64 - 1
    connection.execute(sql.insert(tables.runs).values(row))
    signature = RUN.signature  # joined from its blobs
    joined = (
        sql.literal(signature.sha256).label("signature_sha256"),
        sql.literal(signature.size).label("signature_size"),
    )
    found = connection.execute(sql.select(tables.runs, *joined)).mappings().one()
    assert row_mapping.run_record(found) == RUN


@pytest.mark.parametrize("status", ["committed", "open", "abandoned"])
def test_only_a_committed_round_has_a_model_and_metrics(connection: sql.Connection, status: str) -> None:
    row = {
        **row_mapping.key(FIRST),
        "status": status,
        "cohort": ["a", "b"],
        "counted": ["a"],
        "reason": "",
        "opened": 1.0,
        "seconds": 2.5,
        "incidents": [["b", "its change was scaled down", True]],
        "bases": {"a": 1},
        "replacements": ["b"],
        "reused": {"a": 1},
        "reusable": {},
    }
    found = row_mapping.round_record(stored(connection, tables.rounds, row), {"model": MODEL}, {"loss": 0.5})
    assert (found.id, found.status, found.cohort, found.counted) == (FIRST, status, ("a", "b"), ("a",))
    assert (found.seconds, found.bases) == (2.5, {"a": 1})
    assert found.incidents == (Incident(device="b", description="its change was scaled down", clipped=True),)
    committed = status == "committed"
    assert (found.blobs, found.metrics) == (({"model": MODEL}, {"loss": 0.5}) if committed else ({}, {}))


def test_a_condition_selects_the_rows_of_one_attempt(connection: sql.Connection) -> None:
    connection.execute(sql.insert(tables.reports), [row_mapping.report_row(update(device)) for device in "ab"])
    query = sql.select(sql.func.count()).where(row_mapping.of_attempt(tables.reports))
    for attempt, count in ((FIRST, 2), (replace(FIRST, attempt=2), 0)):
        assert connection.execute(query, row_mapping.parameters(attempt)).scalar() == count
