"""Rows of CSV files counted before they are read, and quotes that swallow them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonfed.data.csv_lines import count_rows
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.tables import write_csv

ROWS = "".join(f"{i},no,ok\n" for i in range(20))
HEADER = "age,churn,note\n"


@pytest.mark.parametrize(
    ("stray", "reason"),
    [
        ('5,no,"6 inch\n', "has a quote that is not closed"),
        ('"5,no,6 inch\n', "has a quote that is not closed"),
        ('5,"no,6 inch\n', "has a quote that is not closed"),
        ('5,no,"6 ""inch""\n', "has a quote that is not closed"),
        (f'5,no,"6 inch\n{ROWS}6,no,"7 inch\n', "has a cell in quotes with line breaks, and text after it"),
        (f'"5,no,6\n{ROWS}"6",no,7\n', "has a cell in quotes with line breaks, and text after it"),
    ],
    ids=["last", "first", "middle", "doubled", "closed-by-the-next", "closed-by-a-quoted-cell"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_a_stray_quote_is_an_error_with_its_row(tmp_path: Path, stray: str, reason: str, end: str) -> None:
    path = write_csv(tmp_path / "c.csv", (HEADER + ROWS + stray + ROWS).replace("\n", end))
    with pytest.raises(InvalidInput, match=f"^{path}, row 22 {reason}; write quotes in a cell twice"):
        count_rows(path, 1 << 20, [])


def test_a_quote_is_missed_before_the_rest_of_a_large_file_is_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "c.csv", HEADER + '1,no,"5\n' + ROWS * 20)
    with refused(InvalidInput, "quote"):
        count_rows(path, 100, [])


@pytest.mark.parametrize(
    ("cells", "noted"),
    [
        ('5,no,"6 inch\n6,no,7 inch"\n', True),
        (f'5,no,"6 inch\n{ROWS}6,no,7 inch"\n', True),
        ('"5 inch,no,6\n6 inch",no,6\n', True),
        ('5,no,"Dear all,\n1,no,x\nbye"\n', True),
        ('5,no,"Dear all,\n\nthanks\n"\n', False),
        ('5,no,"a, b, c"\n', False),
        ('5,no,6" rack\n', False),
        ('5,no,"6"" rack"  \n', False),
    ],
    ids=["two-rows", "many-rows", "first-column", "a-line-within", "text", "one-line", "unquoted", "doubled"],
)
def test_a_quoted_cell_with_lines_that_look_like_rows_is_noted(tmp_path: Path, cells: str, noted: bool) -> None:
    path, notes = write_csv(tmp_path / "c.csv", "\ufeff" + HEADER + ROWS + cells + ROWS), list[str]()
    assert count_rows(path, 1 << 20, notes) == 42
    assert [note.partition(": ")[0] for note in notes] == [f"{path}, row 22"] * noted


def test_rows_that_are_noted_are_counted(tmp_path: Path) -> None:
    path, notes = write_csv(tmp_path / "c.csv", HEADER + '5,no,"6 inch\n6,no,7 inch"\n' * 3), list[str]()
    assert count_rows(path, 1 << 20, notes) == 4
    assert notes[0].startswith(f"{path}, row 2 and 2 other rows: ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.lists(st.lists(st.text(st.sampled_from('ab ,"\r\n'), max_size=6), min_size=2, max_size=2), min_size=1))
def test_what_a_program_writes_has_as_many_rows(tmp_path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    assert count_rows(write_csv(tmp_path / "any.csv", text.getvalue()), 1 << 20, []) == len(rows)
