"""Cells as numbers and as positions among names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.data.bad_cells import BadCells, UnusableTable
from moonfed.data.spelling import NUMBER
from moonfed.data.table_cells import count_values, parse_numbers, read_numbers, read_positions
from moonfed.data.table_reader import Batch


def batch(*cells: str | None) -> Batch:
    return Batch(columns={"age": pa.array(cells, pa.string())}, rows=np.arange(10, 10 + len(cells)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("+1.", 1),
        (" -.5e2 ", -50),
        ("1E+3", 1000),
        ("007", 7),
        ("0", 0),
        ("1e38", 1e38),
    ],
)
def test_numbers_are_read_alike_next_to_good_and_bad_ones(text: str, number: float) -> None:
    assert parse_numbers(pa.array([text]), "it").tolist() == [number]
    assert parse_numbers(pa.array([text, "x"]), "it").tolist()[0] == number


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, "the value is missing") for text in ("", "  ", "NA", "n/a", "NaN", "null", "?")),
        *((text, f"'{text}' is not a number") for text in ("abc", "1,5", "1_000", "0x10", "1e", "--1", "٣", "1 2")),
        *((text, f"'{text}' is too large") for text in ("1e39", "-inf", "Infinity", "9" * 39)),
    ],
)
def test_what_is_no_number_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    bad = BadCells(tmp_path / "c.csv")
    numbers = read_numbers(batch("1", text, "2"), "age", 0, bad)
    assert numbers.tolist() == [1, 0, 2]
    with pytest.raises(UnusableTable) as error:
        bad.require_none()
    assert str(error.value) == f"{tmp_path}/c.csv, row 11, column age: {problem}"


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))))
def test_a_cell_is_a_number_only_if_it_is_written_as_one(cells: list[str | None]) -> None:
    found = parse_numbers(pa.array(cells, pa.string()), "it")
    for cell, number in zip(cells, found.tolist(), strict=True):
        written = cell is not None and NUMBER.fullmatch(cell.strip(" \t\n\r\v\f"))
        if written and cell is not None:
            assert number == float(cell)
        else:
            assert not np.isfinite(number)


@given(st.lists(st.sampled_from("abc"), min_size=1), st.permutations("abc"))
def test_positions_are_those_of_the_names(cells: list[str], names: list[str]) -> None:
    bad = BadCells(Path("c.csv"))
    assert read_positions(batch(*cells), "age", 0, names, bad).tolist() == [names.index(cell) for cell in cells]
    assert len(bad) == 0


def test_names_are_compared_exactly_but_for_white_space() -> None:
    bad = BadCells(Path("c.csv"))
    assert read_positions(batch(" b ", "B", None, "NA"), "age", 0, ["a", "b", "NA"], bad).tolist() == [1, 0, 0, 2]
    with pytest.raises(UnusableTable) as error:
        bad.require_none()
    assert "row 11, column age: 'B' is not one of a, b, NA; row 12, column age: the value is missing" in str(
        error.value
    )


def test_values_are_counted() -> None:
    cells = pa.array(["1", "", "NA", None, "x"])
    assert count_values(cells, "it", categorical=False) == 2
    assert count_values(cells, "it", categorical=True) == 3
