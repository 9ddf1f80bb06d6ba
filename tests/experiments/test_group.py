"""Parties from a column of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.data.bad_cells import UnusableTable
from moonfed.errors import InvalidInput
from moonfed.experiments.group import group_by, read_names
from tests.support.refusals import refused
from tests.support.tables import write_csv, write_parquet

TABLE = "age,site\n1,Ulm\n2,Berlin\n\n3, Ulm \n4,Berlin\n5,Köln\n"


def test_each_value_is_a_party(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", TABLE)
    assert read_names(path, "site") == ("Berlin", "Köln", "Ulm")
    parts = group_by(path, "site", np.array([2, 3, 5, 6, 7]))  # the blank line is row 4
    assert [part.tolist() for part in parts] == [[1, 3], [4], [0, 2]]
    path = write_parquet(tmp_path / "a.parquet", {"site": [2, 1, 2]})
    assert [part.tolist() for part in group_by(path, "site", np.array([1, 2, 3]))] == [[1], [0, 2]]


def test_rows_and_columns_that_make_no_party_are_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", TABLE + "6,\n7,Jena\n")
    with pytest.raises(UnusableTable, match=r"a\.csv, row 8, column site: the value is missing"):
        group_by(path, "site", np.array([2, 8]))
    with refused(InvalidInput, "site", "Jena"):
        group_by(path, "site", np.array([2, 3, 5, 6, 7]))
    with pytest.raises(UnusableTable, match="lacks the column 'town'; its columns are age, site"):
        read_names(path, "town")
    with refused(InvalidInput, "by", "site"):
        read_names(Path("module:function"), "site")


def test_an_array_names_the_party_of_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, inputs=np.zeros((4, 2), np.float32), site=np.array([2, 1, 2, 1]), few=np.arange(3))
    assert read_names(path, "site") == ("1", "2")
    assert [part.tolist() for part in group_by(path, "site", np.array([0, 1, 3]))] == [[1, 2], [0]]
    with refused(InvalidInput, "shape of few"):
        read_names(path, "few")
