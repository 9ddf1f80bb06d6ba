"""Descriptions of columns on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput, NotFound, VersionMismatch
from moonfed.export.bundle_recipe import read_samples
from moonfed.export.table_description import Scale, TableDescription, read_description, write_description
from tests.support.refusals import refused
from tests.support.tables import CLASSES, TABLE

DESCRIPTION = TableDescription(table=TABLE, target=class_target(CLASSES), scales={"age": Scale(41.5, 12.25)})
TARGET: dict[str, Any] = {"columns": ["churn"], "kind": "class", "names": list(CLASSES), "shape": []}
NOTHING = dict.fromkeys(("input", "classes", "mean", "std"))


def test_a_description_survives_its_file(tmp_path: Path) -> None:
    write_description(tmp_path / "new" / "columns.json", DESCRIPTION)
    assert read_description(tmp_path / "new" / "columns.json") == DESCRIPTION


def test_a_bundle_takes_everything_from_the_description(tmp_path: Path) -> None:
    write_description(tmp_path / "columns.json", DESCRIPTION)
    samples = read_samples(tmp_path / "columns.json", NOTHING)
    assert (samples.input, samples.target.names) == (DESCRIPTION.input, CLASSES)
    assert (samples.mean, samples.deviation) == ((41.5, 0, 0), (12.25, 1, 1))
    with refused(InvalidInput, "classes", "a,b"):
        read_samples(tmp_path / "columns.json", NOTHING | {"classes": "a,b"})
    with refused(InvalidInput, "input"):
        read_samples(None, NOTHING | {"classes": "a,b"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "csv"}, "has format 'csv'"),
        ({"kind": "table"}, "field is 'kind'"),
        ({"target": TARGET | {"names": ["no"]}}, "classes is .*"),
        ({"target": TARGET | {"names": ["no", "no"]}}, "it must be names that all differ"),
        ({"columns": [{"name": "age"}]}, "lacks the field 'mean'"),
        (
            {"columns": [{"name": "age", "mean": 1, "deviation": 0}]},
            "deviation of column 'age' is 0.0; it must be",
        ),
        ({"columns": [{"name": "age", "mean": "x", "deviation": 1}]}, "is not a description of columns"),
        ({"columns": [{"name": "age", "mean": 1, "deviation": 1, "categories": ["a"]}]}, "field of column 'age' is"),
        ({"columns": [{"name": "age", "values": ["a"]}]}, "field of column 'age' is 'values'; the fields must be"),
        ({"target": TARGET | {"columns": ["age"]}}, "target is 'age'"),
        ({"target": TARGET | {"columns": ["a", "b"]}}, r"target.columns is \['a', 'b'\]; it must be 1 for 2 classes"),
        ({"target": TARGET | {"kind": "mask", "shape": [2, 2]}}, "target.kind is 'mask'"),
        ({"target": TARGET | {"colour": "red"}}, "field of target is 'colour'"),
        ({"target": "churn"}, "is not a description of columns"),
        ({"window": -1}, "window is -1"),
        ({"group": "plan", "window": 2}, "group is 'plan'"),
        ({"group": "meter"}, "group is 'meter'"),
    ],
)
def test_a_description_that_is_wrong_is_named_with_its_field(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "columns.json"
    path.write_text(json.dumps(json.loads(DESCRIPTION.to_text()) | change))
    with pytest.raises(InvalidInput, match=message) as error:
        read_description(path)
    assert str(error.value).startswith(str(path))


def test_a_description_of_another_version_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "columns.json"
    path.write_text(json.dumps(json.loads(DESCRIPTION.to_text()) | {"format": "moonfed-columns/9", "later": 1}))
    with pytest.raises(VersionMismatch) as error:
        read_description(path)
    assert str(path) in str(error.value)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "columns.json").write_text("[1]")
    with refused(InvalidInput, "columns"):
        read_description(tmp_path / "columns.json")
    with refused(NotFound, "columns"):
        read_description(tmp_path / "absent")
