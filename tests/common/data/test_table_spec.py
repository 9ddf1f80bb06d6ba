"""Columns of tables: widths, documents, and what a manifest from the network may not contain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.bundle.manifest import InputSpec, read_input
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.tables import INPUT, TABLE

words = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")), min_size=1, max_size=8)
columns = st.builds(
    lambda name, categories: Column(name=name, categories=tuple(categories)), words, st.lists(words, unique=True)
)


def test_the_width_is_that_of_numbers_and_categories() -> None:
    assert (TABLE.width, TABLE.names) == (3, ("age", "plan"))
    assert INPUT.describe() == "tables of 2 columns"


@given(st.lists(columns, min_size=1, unique_by=lambda column: column.name), words)
def test_a_table_survives_its_document(found: list[Column], target: str) -> None:
    if target in [column.name for column in found]:
        return
    table = TableSpec(columns=tuple(found), targets=(target,))
    sample = InputSpec(kind="features", shape=(table.width,), table=table)
    assert read_input(sample.to_text(), "it") == sample


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"columns": []}, r"columns is \[\]"),
        ({"columns": [{"name": "a"}, {"name": "a"}]}, "it must be names that all differ"),
        ({"targets": ["age"]}, "target is 'age'"),
        ({"targets": [""]}, "target is ''"),
        ({"columns": [{"name": " a"}]}, "name of a column is ' a'; it must be text that neither begins nor ends"),
        ({"columns": [{"name": "a\nb"}]}, "without control characters"),
        ({"columns": [{"name": "a", "categories": ["b", "b"]}]}, "it must be names that all differ"),
        ({"columns": [{"name": "a", "categories": ["\x1b[2J"]}]}, "category of column 'a' is .* one line"),
        ({"columns": [{"name": "a"}]}, r"input.shape is \(3,\)"),
        ({"targets": ["left", "left"]}, "targets is .*; it must be names that all differ"),
        ({"group": "plan"}, "group is 'plan'"),
        ({"group": "churn"}, "group is 'churn'; it must be another column"),
        ({"columns": 3}, "it does not describe its input"),
        ({"columns": [{}]}, "it does not describe its input"),
    ],
)
def test_a_table_that_cannot_be_is_rejected(document: dict[str, Any], message: str) -> None:
    import json

    good = INPUT.to_document()
    with pytest.raises(InvalidInput, match=message):
        read_input(json.dumps(good | {"table": good["table"] | document}), "it")


def test_images_have_no_columns() -> None:
    with refused(InvalidInput, "input.kind", "image"):
        InputSpec(kind="image", shape=(3, 1, 1), table=TABLE)
