"""The rows of a CSV file, and quotes that would swallow some of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.data.bad_cells import UnusableTable
from moonfed.data.csv_rows import find_rows
from moonfed.data.table_reader import read_batches, read_header

HEADER = "note,age,plan"
GOOD = "ok,1,plus"


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(f"{line}{end}" for line in (HEADER, *lines)).encode())
    return path


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        ([GOOD, GOOD, '"5 inch,1,plus', GOOD], 4),
        ([GOOD, 'ok,1,"19 inch rack, see mail', GOOD, GOOD], 3),
        (['ok,"1,plus'], 2),
        ([GOOD, '"', GOOD], 3),
        ([GOOD, 'ok,1,"two""', GOOD], 3),
        (['"a\nb",1,plus', GOOD, '"c,1,plus'], 4),
    ],
    ids=["first", "last", "only-row", "alone", "doubled", "after-a-line-break"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_quote_that_is_not_closed_is_an_error_with_its_row(
    tmp_path: Path, lines: list[str], row: int, end: str
) -> None:
    path = write(tmp_path / "a.csv", *lines, end=end)
    with pytest.raises(UnusableTable, match=rf"a\.csv, row {row} has a quote that is not closed") as error:
        list(read_batches(path, ("age",)))
    assert error.value.public == str(error.value)


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        ([GOOD, '"5" pipe,1,plus'], 3),
        ([GOOD, 'ok,1,"a" "b"'], 3),
        (['"5 inch,1,plus', 'ok,1,"6 inch'], 2),
        (['ok,"1"0,plus', GOOD], 2),
    ],
    ids=["inch", "two-in-one", "two-rows", "number"],
)
def test_text_after_a_quote_is_an_error_with_its_row(tmp_path: Path, lines: list[str], row: int) -> None:
    path = write(tmp_path / "a.csv", *lines)
    with pytest.raises(UnusableTable, match=rf"a\.csv, row {row} has a quote with text after it"):
        list(read_batches(path, ("age",)))


@pytest.mark.parametrize(
    ("lines", "row", "number"),
    [
        ([GOOD, '"5 inch,1,plus', GOOD, GOOD, 'see 6",1,plus', GOOD], 3, 2),
        (['ok,1,"see', GOOD, 'that"', GOOD], 2, 1),
        ([GOOD, 'ok,1,"see', GOOD, '""a"" or', GOOD, 'that"'], 3, 2),
    ],
    ids=["first", "last", "doubled"],
)
def test_a_quoted_cell_whose_lines_look_like_rows_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str], row: int, number: int
) -> None:
    list(read_batches(write(tmp_path / "a.csv", *lines), ("note",)))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"a.csv, row {row}: a quoted cell goes on for more lines, of which {number} look like rows" in record.message


@pytest.mark.parametrize(
    "lines",
    [
        ['"Mill Lane 1\nBath, BA1",1,plus', '"a, ""b""",1,plus', 'ok,"1","plus"'],
        ['5" pipe,1,plus', 'it\'s 6"" wide,1,"plus"'],
        ['"",1,plus', '"\n",1,"\n\n"'],
    ],
    ids=["address", "unquoted", "empty"],
)
def test_cells_that_need_no_remark_get_none(tmp_path: Path, caplog: pytest.LogCaptureFixture, lines: list[str]) -> None:
    path = write(tmp_path / "a.csv", *lines)
    assert sum(len(batch) for batch in read_batches(path, ("age",))) == len(lines)
    assert not caplog.records


@pytest.mark.parametrize(
    ("lines", "blank"),
    [
        (["7,,", GOOD, ",,plus"], []),
        ([GOOD, ",,", GOOD, "", " , ,\t"], [3, 5, 6]),
        (['"","",""', GOOD], [2]),
    ],
    ids=["other-columns", "commas", "quotes"],
)
def test_a_row_is_blank_only_if_all_cells_are_empty(tmp_path: Path, lines: list[str], blank: list[int]) -> None:
    path = write(tmp_path / "a.csv", *lines)
    assert find_rows(path, 3).blank.tolist() == blank
    found = [row for batch in read_batches(path, ("age",)) for row in batch.rows.tolist()]
    assert found == [row for row in range(2, len(lines) + 2) if row not in blank]


@given(st.lists(st.lists(st.text(alphabet="a1,\"\n\r '", max_size=6), min_size=3, max_size=3), max_size=8))
def test_rows_are_those_that_were_written(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER.split(","), *rows])
    assert find_rows(path, 3).count == len(rows)
    assert read_header(path) == tuple(HEADER.split(","))
    kept = [row for batch in read_batches(path, ("age",)) for row in batch.columns["age"].to_pylist()]
    assert len(kept) >= sum(any(cell.strip() for cell in row) for row in rows)
