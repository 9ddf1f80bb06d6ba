"""Reports of bad cells: how many, the first few in order, and a form without their values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.data.bad_cells import BadCells, Cell, UnusableTable, one_of


def report(cells: list[Cell]) -> UnusableTable:
    bad = BadCells(Path("customers.csv"))
    for cell in cells:
        bad.add([0], lambda _, cell=cell: cell)  # type: ignore[misc]
    with pytest.raises(UnusableTable) as error:
        bad.require_none()
    return error.value


def test_no_bad_cell_is_no_error() -> None:
    BadCells(Path("customers.csv")).require_none()


def test_the_first_rows_are_shown_in_order() -> None:
    cells = [Cell(row, 0, "age", "x", "is not a number") for row in (9, 4, 1500, 7)]
    assert str(report(cells)) == (
        "customers.csv has 4 cells that cannot be used: row 4, column age: 'x' is not a number; "
        "row 7, column age: 'x' is not a number; row 9, column age: 'x' is not a number; and 1 more"
    )


def test_only_the_first_cells_of_a_column_are_described() -> None:
    bad, described = BadCells(Path("customers.csv")), list[int]()

    def describe(index: int) -> Cell:
        described.append(index)
        return Cell(index, 0, "age", "x", "is not a number")

    bad.add(range(1000), describe)
    assert (len(bad), described) == (1000, [0, 1, 2])


def test_long_values_are_cut_and_control_characters_escaped() -> None:
    found = str(report([Cell(2, 0, "age", "a\n\x1b" + "b" * 100, "is not a number")]))
    assert found == f"customers.csv, row 2, column age: 'a\\n\\x1b{'b' * 37}…' is not a number"


@given(st.text(min_size=2, alphabet="XYZ'\"\\ %{}"))
def test_the_public_form_never_contains_a_value(value: str) -> None:
    public = report([Cell(2, 0, "age", value, "is not a number")]).public
    assert public == "customers.csv, row 2, column age: a value is not a number"


def test_many_names_are_counted() -> None:
    assert one_of(["a", "b"]) == "is not one of a, b"
    assert one_of([str(number) for number in range(12)]) == "is not one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (12 in all)"
