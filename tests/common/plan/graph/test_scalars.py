"""Arithmetic on the numbers of a graph: Python's, within 64 bits, with the kinds that inspection relies on."""

from __future__ import annotations

import pytest

from moonfed.plan.graph.arguments import Kind
from moonfed.plan.graph.scalars import SCALARS

KINDS = {int: Kind.INT, float: Kind.FLOAT}


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("add", (7, 0.5), 7.5),
        ("sub", (7, 10), -3),
        ("mul", (7, 7), 49),
        ("truediv", (7, 2), 3.5),
        ("floordiv", (-7, 2), -4),
        ("neg", (7,), -7),
        ("int", (-1.9,), -1),
        ("float", (7,), 7.0),
        ("max", (7, 9), 9),
        ("min", (7, 9.0), 7),
        ("pow", (7, 2), 49),
        ("pow", (2, -1), 0.5),
        ("pow", (7, 0.5), 7**0.5),
        ("sqrt", (7,), 7**0.5),
    ],
)
def test_results_have_the_value_and_the_kind_that_is_inferred(
    name: str, numbers: tuple[float, ...], expected: float
) -> None:
    scalar = SCALARS[f"scalar::{name}"]
    found = scalar.function(*numbers)
    assert len(numbers) == scalar.arguments
    assert (found, type(found)) == (expected, type(expected))
    assert scalar.kind([KINDS[type(each)] for each in numbers]) in (KINDS[type(found)], Kind.NUMBER)


def test_only_numbers_that_are_certainly_integers_are_inferred_as_such() -> None:
    for name in ("add", "mul", "floordiv", "max", "pow"):
        assert SCALARS[f"scalar::{name}"].kind([Kind.NUMBER, Kind.INT]) is Kind.NUMBER
    assert SCALARS["scalar::int"].kind([Kind.NUMBER]) is Kind.INT


@pytest.mark.parametrize(
    ("name", "numbers", "error"),
    [
        ("truediv", (7, 0), ZeroDivisionError),
        ("add", (1, (1 << 63) - 1), OverflowError),
        ("sub", (-2, (1 << 63) - 1), OverflowError),
        ("mul", (3, 1 << 62), OverflowError),
        ("neg", (-(1 << 63),), OverflowError),
        ("pow", (7, 64), OverflowError),
        ("pow", (7, 1 << 62), OverflowError),
        ("pow", (-1.5, 0.5), ValueError),
        ("pow", (-8, 0.5), ValueError),
        ("int", (float("inf"),), OverflowError),
        ("int", (1e300,), OverflowError),
        ("floordiv", (1 << 62, 0), ZeroDivisionError),
        ("sqrt", (-1,), ValueError),
    ],
)
def test_results_beyond_64_bits_are_errors(name: str, numbers: tuple[float, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        SCALARS[f"scalar::{name}"].function(*numbers)
