"""Tables in batches: names, numbers of rows, and bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.data.table_reader import read_batches, read_header
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.tables import write_csv, write_parquet


def rows_of(path: Path, name: str) -> list[tuple[int, str]]:
    found = list[tuple[int, str]]()
    for batch in read_batches(path, [name], []):
        found += zip(batch.rows.tolist(), batch.columns[name].to_pylist(), strict=True)
    return found


def test_names_are_trimmed_and_only_wanted_columns_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "c.csv", ' a ,"b\nc",\n1,2,3\n')
    assert read_header(path) == ("a", "b\nc", "")
    (batch,) = read_batches(path, ["b\nc"], [])
    assert batch.columns["b\nc"].to_pylist() == ["2"]
    assert list(batch.columns) == ["b\nc"]


def test_rows_are_counted_through_batches_blank_lines_and_line_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonfed.data.table_reader.BLOCK_BYTES", 1000)
    lines = [f'"{i}\n{i}"' if i % 7 == 0 else "" if i % 5 == 0 else str(i) for i in range(2, 2000)]
    found = rows_of(write_csv(tmp_path / "c.csv", "a\n" + "\n".join(lines)), "a")
    expected = [(row, text.strip('"')) for row, text in enumerate(lines, start=2) if text]
    assert found == expected


def test_rows_of_parquet_files_are_counted_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.data.table_reader.PARQUET_ROWS", 100)
    path = write_parquet(tmp_path / "c.parquet", {"a": [str(i) for i in range(950)], "b": list(range(950))})
    assert read_header(path) == ("a", "b")
    assert rows_of(path, "a") == [(i + 1, str(i)) for i in range(950)]


def test_rows_after_one_of_another_length_are_not_numbered(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "c.csv", "a,b\n1,2\n3\n4,5\n")
    with refused(InvalidInput, "cells of row 3", 1):
        rows_of(path, "a")


def test_a_file_with_an_endless_first_line_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.data.table_reader.HEADER_BYTES", 50)
    path = write_csv(tmp_path / "c.csv", "a" * 200_000)
    with refused(InvalidInput, "header"):
        read_header(path)
