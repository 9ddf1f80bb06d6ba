"""The page "What leaves a device" has every field of every message that a device sends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from moonfed.bundle.manifest import MODEL, UPLINK
from moonfed.edge_client.agent.compatibility import describe_platform
from moonfed.v1 import enrolment_pb2, fleet_pb2

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "what-leaves-a-device.md").read_text()
CODE = re.compile(r"`([^`]+)`")


def rows(text: str, columns: int) -> Iterator[list[str]]:
    """Yield the cells of the rows of tables with that many columns, but for their heads."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| `") else []
        if len(cells) == columns:
            yield cells


def documented(text: str) -> list[str]:
    """Return the fields in the page's table, as MESSAGE.FIELD."""
    return [
        f"{CODE.findall(message)[0]}.{field}" for message, fields, *_ in rows(text, 6) for field in CODE.findall(fields)
    ]


def fields_of(kind: Descriptor, known: set[str]) -> Iterator[str]:
    """Yield the fields of a message and of its parts, as MESSAGE.FIELD."""
    if kind.full_name in known:
        return
    known.add(kind.full_name)
    for field in kind.fields:
        if not kind.GetOptions().map_entry:
            yield f"{kind.name}.{field.name}"
        if field.message_type:
            yield from fields_of(field.message_type, known)


def sent() -> set[str]:
    """Return the fields of all requests of the two services that devices call."""
    known: set[str] = set()
    services = [fleet_pb2.DESCRIPTOR.services_by_name["Fleet"], enrolment_pb2.DESCRIPTOR.services_by_name["Enrolment"]]
    return {found for one in services for method in one.methods for found in fields_of(method.input_type, known)}


def test_every_field_that_a_device_sends_is_in_the_table_once_and_none_that_it_does_not() -> None:
    found = documented(PAGE)
    assert sorted(found) == sorted(sent())


@pytest.mark.parametrize(
    "removed",
    [
        pytest.param("`local_score`", id="a score"),
        pytest.param("`platform`", id="a map"),
        pytest.param("`previous`", id="a field of a part"),
        pytest.param("`signing_request`", id="of enrolment"),
    ],
)
def test_a_field_that_is_not_in_the_table_is_found(removed: str) -> None:
    assert set(documented(PAGE.replace(removed, ""))) < sent()


def test_every_file_of_an_update_is_in_its_table() -> None:
    assert {CODE.findall(role)[0] for role, *_ in rows(PAGE, 3)} == {MODEL, *UPLINK}


def test_the_platform_has_only_what_the_page_names() -> None:
    (row,) = (cells for cells in rows(PAGE, 6) if cells[1] == "`platform`")
    assert [name for name in describe_platform("cpu") if name not in row[2].lower()] == []
