"""Names that people take for the same, and names that they do not."""

from __future__ import annotations

import unicodedata

import pytest

from moonfed.data.spelling import Names, canonical, composed

CAFE = "caf\u00e9"


@pytest.mark.parametrize(
    "spellings",
    [
        ["1", "1.0", "1.", "+1", "1e0", "0.1e1", "10e-1"],
        ["0", "0.0", "-0", "0e5", ".0"],
        ["-1500", "-1.5e3", "-1500.00", "-15E+2"],
        ["true", "True", "TRUE"],
        [CAFE, unicodedata.normalize("NFD", CAFE)],
        ["9007199254740993", "9007199254740993.0"],
    ],
    ids=["one", "zero", "negative", "boolean", "accent", "large"],
)
def test_spellings_of_one_name_are_found(spellings: list[str]) -> None:
    assert len(set(map(canonical, spellings))) == 1
    for name in spellings:
        assert [Names(["other", name]).find(other) for other in spellings] == [1] * len(spellings)


@pytest.mark.parametrize(
    ("one", "other"),
    [("7", "007"), ("1", "10"), ("1", "-1"), ("9007199254740993", "9007199254740992"), ("yes", "Yes"), ("1", "true")],
)
def test_other_names_differ(one: str, other: str) -> None:
    assert Names([one]).find(other) is None


def test_a_name_in_the_list_means_itself_and_another_spelling_of_two_of_them_none() -> None:
    names = Names(["True", "true", "1.0", "1", "no"])
    assert [names.find(name) for name in ("true", "1", "TRUE", "1.00", "no")] == [1, 3, None, None, 4]


def test_accents_are_composed() -> None:
    assert composed(unicodedata.normalize("NFD", CAFE)) == CAFE
