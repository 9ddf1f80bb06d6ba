"""Numbers with their nouns, and times, as all programs print them."""

from __future__ import annotations

import pytest

from moonfed.formatting import count, iso_time


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (12_000, "12,000 rounds")]
)
def test_one_is_singular(number: int, text: str) -> None:
    assert count(number, "round") == text


def test_times_in_json_are_iso_8601_in_utc() -> None:
    assert iso_time(1_795_351_872.9) == "2026-11-22T12:51:12Z"
    assert iso_time(0) is None
    assert iso_time(2.0**62) == "9999-12-31T23:59:59Z"
