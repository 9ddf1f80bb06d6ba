"""Numbers as a paper prints them."""

import pytest

from moonfed.experiments.papers.recipe import PaperValue


def test_a_papers_number_is_read_with_deviation_thousands_and_minutes() -> None:
    assert PaperValue.read("69.1 ± 0.4") == PaperValue(text="69.1 ± 0.4", value=69.1, deviation=0.4)
    assert PaperValue.read("5,000") == PaperValue(text="5,000", value=5000.0)
    assert PaperValue.read("20 min") == PaperValue(text="20 min", value=1200.0)
    assert PaperValue.read("5,000 ± 1,165") == PaperValue(text="5,000 ± 1,165", value=5000.0, deviation=1165.0)
    assert PaperValue.read("1.8x") == PaperValue(text="1.8x", value=1.8)
    assert PaperValue.read("") is None


@pytest.mark.parametrize("text", ["<1x", ">100", "\N{EN DASH}"])
def test_a_bound_or_a_dash_is_quoted_without_a_value(text: str) -> None:
    assert PaperValue.read(text) == PaperValue(text=text)
