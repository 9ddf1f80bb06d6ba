"""Numbers with their nouns, and times, as all programs print them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from moonfed.formatting import count, iso_time, measured, number_text, percent_text, read_percent


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (12_000, "12,000 rounds")]
)
def test_one_is_singular(number: int, text: str) -> None:
    assert count(number, "round") == text


def test_times_in_json_are_iso_8601_in_utc() -> None:
    assert iso_time(1_795_351_872.9) == "2026-11-22T12:51:12Z"
    assert iso_time(0) is None
    assert iso_time(2.0**62) == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        pytest.param(0.07, "7%", id="7 percent"),
        pytest.param(1.0, "100%", id="all"),
        pytest.param(1e-7, "0.00001%", id="very few"),
        pytest.param(2 / 3, "66.66666666666666%", id="two thirds"),
        pytest.param(10.0, "1000%", id="more than all"),
    ],
)
def test_a_percentage_is_as_short_as_it_can_be_read_again(fraction: float, text: str) -> None:
    assert percent_text(fraction) == text
    assert read_percent(text) == fraction


@given(strategies.floats(0, 10))
def test_every_number_is_read_as_it_was_printed(number: float) -> None:
    assert read_percent(percent_text(number)) == number
    assert float(number_text(number)) == number


@pytest.mark.parametrize("text", ["some%", "%", "1,5%", "snan%", "1e99999999999999999999%"])
def test_what_is_not_a_percentage_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage"):
        read_percent(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (0.93004, "0.9300"),
        (55.12345, "55.1234"),
        (12345.67, "12345.7"),
        (0.00012345, "0.000123"),
        (-1500.0, "-1500.0"),
        (1e300, "1e+300"),
    ],
)
def test_a_measured_number_has_about_four_digits_that_matter(value: float, text: str) -> None:
    assert measured(value) == text


def test_numbers_are_short() -> None:
    assert [number_text(value) for value in (2.0, 12.5, 1_234_567.0, 100 / 3)] == [
        "2",
        "12.5",
        "1234567",
        "33.333333333333336",
    ]
