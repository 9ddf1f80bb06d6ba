"""Single values of settings, as operators write them."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.control.kinds import Amount, Amounts, Share
from moonfed.control.run_settings import RunSettings
from moonfed.errors import InvalidInput

AMOUNT, SHARE = Amounts(), Share("the cohort", 10)
NOT_ALLOWED: dict[str, tuple[object, ...]] = {
    "cohort": ("", "many", "0", "0%", "101%", "-3", "nan%", "1.5", [1], True, None),
    "over_selection": ("some", -0.1, "nan", "1100%", {}),
    "rounds": (0, "many", 1.5, True, 1_000_001, float("inf")),
    "deadline": (0.0, -1, float("inf"), float("nan"), "soon"),
    "asynchronous": (-1,),
    "max_staleness": (65,),
    "weight_cap": (0.3, -1, float("inf")),
    "clip_norm": (-1, float("nan")),
    "seed": (-1, 2**64),
    "sampling": ("size", "", 3),
    "uplink_encoding": ("", "int8\n\x1b", "x" * 201, ["int8"]),
    "trusting": ("maybe", 2, None),
    "labels": (3, {"": "x"}, {"site": [1]}, ["site"], {f"n{number}": "x" for number in range(65)}),
    "reducer_settings": (3, {"a": None}, {"a": float("nan")}, {"a": "\x1b"}, ["byzantine"]),
}


@pytest.mark.parametrize(
    ("text", "total", "expected"), [("10", 7, 10), ("10%", 30, 3), ("10%", 31, 4), ("all", 9, 9), ("0.1%", 5, 1)]
)
def test_amounts_as_operators_write_them(text: str, total: int, expected: int) -> None:
    assert AMOUNT.read("cohort", text).of(total) == expected


def test_a_recorded_share_selects_as_many_devices() -> None:
    for total in range(1, 200):
        for part in range(1, total + 1):
            recorded = AMOUNT.write(Amount(fraction=part / total))
            assert AMOUNT.read("cohort", recorded).of(total) == part


@pytest.mark.parametrize(
    ("text", "expected"), [("30%", 0.3), ("0.25", 0.25), ("0", 0.0), ("150 %", 1.5), (" 100% ", 1.0)]
)
def test_shares_as_operators_write_them(text: str, expected: float) -> None:
    assert SHARE.read("over_selection", text) == pytest.approx(expected)


def test_a_number_of_devices_is_not_a_share() -> None:
    """`--over-selection 5` with `--cohort 20` must not select five times as many devices as requested."""
    with pytest.raises(InvalidInput, match="over_selection is '5', a share without a percent sign"):
        SHARE.read("over_selection", "5")


@pytest.mark.parametrize("key", NOT_ALLOWED)
def test_a_value_that_is_not_allowed_is_named(key: str) -> None:
    for value in NOT_ALLOWED[key]:
        with pytest.raises(InvalidInput, match=rf"^({key}|label|there are 65 labels)"):
            RunSettings.read({key: value})


@pytest.mark.parametrize(
    "amount", [Amount(), Amount(count=1, fraction=0.5), Amount(fraction=0.0), Amount(fraction=1.5)]
)
def test_an_amount_is_a_count_or_a_fraction(amount: Amount) -> None:
    with pytest.raises(InvalidInput, match="cohort is"):
        RunSettings(cohort=amount)


@pytest.mark.parametrize(
    ("fields", "phrases"),
    [
        ({}, []),
        ({"cohort": "20%", "deadline": 60, "weight_cap": 1.5}, ["cohort 20%", "deadline 60 s", "weight cap 1.5/N"]),
        ({"labels": ["site=ulm", "a=b"], "trusted_labels": True}, ["labels a=b, site=ulm", "trusted labels"]),
        ({"asynchronous": 3, "over_selection": "0%"}, ["asynchronous 3"]),
        (
            {"reducer": "median", "reducer_settings": {"byzantine": 1}},
            ["reducer median", "reducer settings byzantine=1"],
        ),
    ],
)
def test_people_read_what_differs_from_the_defaults(fields: dict[str, Any], phrases: list[str]) -> None:
    assert RunSettings.read(fields).phrases() == phrases


def test_a_reducers_settings_are_numbers_however_they_are_written() -> None:
    texts = ["a=1", "b=0.5", "c=mean", "d=nan", "e=1e400"]
    found = RunSettings.read({"reducer_settings": texts}).reducer_settings
    assert found == {"a": 1, "b": 0.5, "c": "mean", "d": "nan", "e": "1e400"}
    assert RunSettings.read({"reducer_settings": {"a": "1", "f": True}}).reducer_settings == {"a": 1, "f": True}
