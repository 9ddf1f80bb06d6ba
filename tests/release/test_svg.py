"""Axes and names of charts."""

from __future__ import annotations

import pytest

from moonfed.release.svg import Drawing, shortened, ticks, widened, width_of


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((-3.0, 12.0), ["0", "5", "10"]),
        ((250_000.0, 450_000.0), ["250,000", "300,000", "350,000", "400,000", "450,000"]),
        ((0.0, 4e15), ["0", "1e+15", "2e+15", "3e+15", "4e+15"]),
        ((0.0, 3e-7), ["0", "1e-07", "2e-07", "3e-07"]),
        ((10_000_000.0, 10_000_002.0), ["1.00000000e+07", "1.00000005e+07", "1.00000010e+07", "1.00000015e+07",
                                        "1.00000020e+07"]),
    ],
)  # fmt: skip
def test_ticks_are_round_and_differ(ends: tuple[float, float], shown: list[str]) -> None:
    assert [text for _, text in ticks(*ends)] == shown


def test_a_range_has_a_length() -> None:
    assert widened(2.0, 3.0) == (2.0, 3.0)
    assert widened(5.0, 5.0) == (4.5, 5.5)
    assert widened(0.0, 0.0) == (-1.0, 1.0)


def test_a_long_name_is_cut_by_its_width() -> None:
    assert shortened("cat") == "cat"
    assert shortened("a" * 30) == "a" * 23 + "…"
    assert shortened("猫" * 30) == "猫" * 11 + "…"
    assert width_of("猫") == 2 * width_of("a")


def test_text_is_no_markup() -> None:
    content = Drawing("a \"<script>\" & 'b'").to_bytes()
    assert b"<script>" not in content
    assert content == Drawing("a \"<script>\" & 'b'").to_bytes()
