"""Data sources by the text that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.data.folder import FolderSource
from moonfed.data.function import FunctionSource
from moonfed.data.npz import NpzSource
from moonfed.data.open_source import open_source
from moonfed.data.table import TableSource
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused


def test_data_name_their_kind(pictures: Path, npz: Path) -> None:
    assert isinstance(open_source(str(pictures)), FolderSource)
    assert isinstance(open_source(str(npz)), NpzSource)
    assert isinstance(open_source("package.module:function"), FunctionSource)
    assert isinstance(open_source("some/customers.csv"), TableSource)
    assert isinstance(open_source("some/CUSTOMERS.PARQUET"), TableSource)
    (pictures / "metadata.parquet").touch()
    assert isinstance(open_source(str(pictures)), FolderSource)
    message = r"it must be a folder of images by class, a \.npz, \.csv or \.parquet file, or"
    (pictures / "notes.txt").touch()
    with pytest.raises(InvalidInput, match=rf"data is '.*notes\.txt'; {message}"):
        open_source(str(pictures / "notes.txt"))
    for absent in (str(pictures / "not-mounted"), "nowhere", "C:nowhere.txt"):
        with pytest.raises(InvalidInput if ":" in absent else NotFound, match=f"PATH is '{absent}'; .*{message}"):
            open_source(absent, option="PATH")


@pytest.mark.parametrize("name", ["absent.npz", "absent.csv", "absent.parquet"])
def test_an_absent_file_is_not_found(tmp_path: Path, name: str) -> None:
    for check in (open_source(str(tmp_path / name), option="calibration").check,):
        with refused(NotFound, "calibration"):
            check()


def test_only_tables_have_a_target(pictures: Path, npz: Path) -> None:
    for text in (str(pictures), str(npz), "module:load"):
        with refused(InvalidInput, "target", "churn"):
            open_source(text, "churn")


@pytest.mark.parametrize("text", ["samples.npz", "customers.csv", "my_data:load"])
def test_folders_are_ignored_only_in_folders(text: str) -> None:
    with refused(InvalidInput, "ignore-folder", "x"):
        open_source(text, ignored_folders=["x"])
