"""Formats are known by name and version; another version is refused as one of another release."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.format_version import known_fields, refuse_unknown_fields, require_readable
from moonfed.version import RELEASE
from tests.support.refusals import refused

READABLE = ("moonfed-thing/3", "moonfed-thing/2")
MEDIA_TYPE = "application/vnd.moonfed.thing+json"


@pytest.mark.parametrize("found", READABLE)
def test_the_versions_that_a_reader_names_are_read(found: str) -> None:
    require_readable("thing.json", found, READABLE)


@pytest.mark.parametrize(
    ("found", "readable"),
    [
        ("moonfed-thing/4", READABLE),
        ("moonfed-thing/1", READABLE),
        ("moonfed-thing/12", READABLE),
        ("moonfed-join-2", ("moonfed-join-1",)),
        ("application/vnd.moonfed.thing.2+json", (MEDIA_TYPE,)),
    ],
)
def test_another_version_is_of_another_release(found: str, readable: tuple[str, ...]) -> None:
    with refused(VersionMismatch, "format", found):
        require_readable("thing.json", found, readable)


def test_the_sentence_names_both_versions_and_what_to_do() -> None:
    with pytest.raises(VersionMismatch) as error:
        require_readable("thing.json", "moonfed-thing/4", READABLE)
    assert str(error.value) == (
        f"thing.json has format 'moonfed-thing/4'; moonfed {RELEASE} reads 'moonfed-thing/3' and 'moonfed-thing/2'; "
        "install the release that wrote it"
    )


@pytest.mark.parametrize(
    "found",
    [None, 3, [], "", "moonfed-thing/", "moonfed-thing/x", "moonfed-things/4", "x" * 1000, {"a": 1}],
)
def test_anything_else_is_no_version(found: object) -> None:
    with pytest.raises(InvalidInput) as error:
        require_readable("thing.json", found, READABLE)
    assert error.value.field == "format"
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("document", "known", "field"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, "b"),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": 1}}}, "a.b.d"),
        ({"a": [{"b": 1}, {"b": 1, "c": 2}]}, {"a": [{"b": 1}, {"b": 1}]}, "a.1.c"),
        ({"a" * 500: 1}, {}, "a" * 100),
    ],
)
def test_the_first_unknown_field_is_named(document: object, known: object, field: str) -> None:
    with refused(VersionMismatch, field):
        refuse_unknown_fields("thing.json", document, known)


@pytest.mark.parametrize(
    ("document", "known"),
    [({"a": 1}, {"a": 2, "b": 3}), ([1, 2], [1]), ("text", {"a": 1}), ({"a": 1}, {"a": {"b": 1}})],
)
def test_other_differences_are_none_of_fields(document: object, known: object) -> None:
    refuse_unknown_fields("thing.json", document, known)


@dataclass
class Thing:
    """A record of this release."""

    a: int
    b: int = 2


def test_a_record_takes_the_fields_that_it_has() -> None:
    assert known_fields(Thing, {"a": 1, "c": 3}) == {"a": 1}
