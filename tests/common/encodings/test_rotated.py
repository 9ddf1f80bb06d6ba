"""rotated4 and rotated1: against their definition, scipy's Hadamard matrix, and the theory for normal values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from moonfed.encodings.int8 import Int8
from moonfed.encodings.number_format import Floats, Numbers
from moonfed.encodings.rotated import Rotated, Rotated1, Rotated4
from tests.support.number_formats import finite, round_trip

Doubles = npt.NDArray[np.float64]
FORMATS = [Rotated4(), Rotated1()]
HADAMARD = scipy.linalg.hadamard(256).astype(np.float64)
SIGNS = np.array([1 - 2 * int(bit) for bit in f"{int(hashlib.sha256(b'moonfed rotation').hexdigest(), 16):0256b}"])
MEAN_MAGNITUDE = math.sqrt(2 / math.pi)  # of normal values
# Relative squared errors of the best 16 levels for normal values, evenly spaced and not (Max 1960).
EVEN, LLOYD_MAX = 0.01154, 0.009497
GOLDEN = {
    "rotated4": "d69f77968fb03d79204ef6ca43d15dd72ec0bf54204031d144d87e2039f2ca2f",
    "rotated1": "c3ab60ca50b9c7d6c9c67fffef06ce7608f38fbd759eea1e324cf8514839c04a",
}


def normal(size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def levels(number_format: Rotated, packed: Numbers, size: int) -> list[int]:
    """Read the levels from the bytes of `size` values: the first value has a byte's lowest bits."""
    bits = number_format.bits
    number = int.from_bytes(packed.tobytes(), "little")
    return [2 * (number >> (bits * i) & (2**bits - 1)) - (2**bits - 1) for i in range(size)]


def decoded_by_definition(number_format: Rotated, numbers: tuple[Numbers, ...], size: int) -> Floats:
    scales, packed = numbers
    k = np.array(levels(number_format, packed, size), np.float64)
    found = []
    for block, scale in enumerate(scales.astype(np.float64)):
        values = k[256 * block : 256 * block + 256]
        found.append(scale * (SIGNS * (HADAMARD @ values) if len(values) == 256 else values))
    return np.concatenate([*found, []]).astype(np.float32)


def transformed(block: Floats) -> Floats:
    """The Hadamard matrix times a block in float32, by the matrix' recursive definition."""
    if len(block) == 1:
        return block
    first, second = np.split(block, 2)
    return np.concatenate([transformed(first + second), transformed(first - second)])


def total(values: Floats) -> np.float32:
    """The sum, first half plus second half, again and again; the last of an odd number stays."""
    if len(values) == 1:
        return np.float32(values[0])
    half = len(values) // 2
    return total(np.append(values[:half] + values[half : 2 * half], values[2 * half :]))


def encoded_by_definition(number_format: Rotated, values: Floats) -> tuple[list[np.float32], list[int]]:
    """Return the scales and the levels, in float32 arithmetic, one operation after the other."""
    scales, found = [], []
    for start in range(0, len(values), 256):
        block = values[start : start + 256]
        if len(block) == 256:
            block = transformed(block * SIGNS.astype(np.float32)) / np.float32(256)
        scales.append(total(abs(block)) / np.float32(len(block)) * np.float32(number_format.spacing))
        highest = 2**number_format.bits - 1
        for value in block:
            level = 2 * math.floor(value / (2 * scales[-1])) + 1
            found.append(max(-highest, min(highest, level)))
    return scales, found


def relative_error(values: Floats | Doubles, found: Floats | Doubles) -> float:
    return float(((values - found) ** 2).sum() / (values.astype(np.float64) ** 2).sum())


def norm(values: Floats) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


def lost(number_format: Rotated, values: Floats) -> float:
    """The relative squared error of one round trip."""
    return relative_error(values, round_trip(number_format, values))


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize("size", [256, 257, 300, 511, 512, 513, 1000, 4 * 256 + 7])
def test_values_are_encoded_by_the_definition_to_the_bit(number_format: Rotated, size: int) -> None:
    """The order of additions decides the last bits of a sum; it is part of the format."""
    values = normal(size) * np.float32(1e-3)
    scales, packed = number_format.encode(values)
    expected, k = encoded_by_definition(number_format, values)
    assert scales.tolist() == [float(scale) for scale in expected]
    assert levels(number_format, packed, size) == k


@pytest.mark.parametrize("number_format", FORMATS)
def test_the_rotation_is_scipys_hadamard_matrix(number_format: Rotated) -> None:
    values = normal(256, seed=5)
    scales, packed = number_format.encode(values)
    rotated = HADAMARD @ (SIGNS * values.astype(np.float64)) / 256
    assert scales[0] == pytest.approx(number_format.spacing * abs(rotated).mean(), rel=1e-5)
    k, highest = np.array(levels(number_format, packed, 256)), 2**number_format.bits - 1
    inside = abs(rotated / scales[0]) < highest + 1
    assert abs(rotated / scales[0] - k)[inside].max() < 1 + 1e-4
    assert (abs(k)[~inside] == highest).all()


@given(st.sampled_from(FORMATS), st.integers(0, 1024), st.integers(0, 2**32), st.floats(-20, 20))
def test_every_size_makes_the_round_trip(number_format: Rotated, size: int, seed: int, power: float) -> None:
    values = normal(size, seed) * np.float32(10**power)
    numbers = number_format.encode(values)
    assert [part.size for part in numbers] == [part.elements(size) for part in number_format.parts]
    assert number_format.find_problem(numbers, size) == ""
    found = number_format.decode(numbers, size)
    assert np.array_equal(found, decoded_by_definition(number_format, numbers, size))
    if size:
        assert norm(values - found) < norm(values)


@given(st.sampled_from(FORMATS), arrays(np.float32, st.integers(1, 600), elements=finite))
def test_any_finite_values_leave_a_finite_error(number_format: Rotated, values: Floats) -> None:
    numbers = number_format.encode(values)
    assert number_format.find_problem(numbers, values.size) == ""
    found = number_format.decode(numbers, values.size)
    assert np.isfinite(values - found).all()
    assert norm(values - found) <= norm(values) * (1 + 1e-4) + 1e-30, "so that error feedback converges"


@pytest.mark.parametrize("number_format", FORMATS)
def test_zeros_stay_zeros(number_format: Rotated) -> None:
    assert not round_trip(number_format, np.zeros(300, np.float32)).any()


def test_four_bits_lose_what_even_levels_lose_of_normal_values() -> None:
    """Scales of 256 values instead of the true deviation change that by less than a hundredth."""
    assert lost(Rotated4(), normal(256 * 4000)) == pytest.approx(EVEN, rel=0.01)
    assert LLOYD_MAX < lost(Rotated4(), normal(256 * 4000)) < 0.0135


def test_the_sign_loses_all_but_two_over_pi_of_normal_values() -> None:
    assert lost(Rotated1(), normal(256 * 4000)) == pytest.approx(1 - 2 / math.pi, rel=0.01)


def test_no_other_spacing_is_better() -> None:
    values = normal(256 * 400)
    for number_format in FORMATS:
        rotated = values.reshape(-1, 256)
        mean = abs(rotated).mean(axis=1, keepdims=True)
        highest = 2**number_format.bits - 1

        def error(factor: float) -> float:
            scale = number_format.spacing * factor * mean
            k = np.clip(2 * np.floor(rotated / (2 * scale)) + 1, -highest, highest)
            return relative_error(rotated, k * scale)

        assert error(1) < min(error(0.93), error(1.07))


def largest_becomes_7(blocks: Doubles) -> Doubles:
    unit = abs(blocks).max(axis=1, keepdims=True) / 7
    found: Doubles = np.rint(blocks / unit) * unit
    return found


def sign_and_mean(blocks: Doubles) -> Doubles:
    found: Doubles = np.sign(blocks) * abs(blocks).mean(axis=1, keepdims=True)
    return found


def heavy_tails(generator: np.random.Generator) -> Doubles:
    return generator.standard_t(2.5, (2000, 256))


def mixed_scales(generator: np.random.Generator) -> Doubles:
    """One value in 16 is a hundred times the others."""
    return generator.normal(size=(2000, 256)) * np.where(np.arange(256) % 16, 1, 100)


@pytest.mark.parametrize(
    ("number_format", "plain", "values", "least_without", "most_with"),
    [
        (Rotated4(), largest_becomes_7, heavy_tails, 0.05, 0.0125),
        (Rotated1(), sign_and_mean, heavy_tails, 0.6, 0.34),
        (Rotated1(), sign_and_mean, mixed_scales, 0.9, 0.37),
    ],
)
def test_rotation_makes_up_for_heavy_tails_and_mixed_scales(
    number_format: Rotated,
    plain: Callable[[Doubles], Doubles],
    values: Callable[[np.random.Generator], Doubles],
    least_without: float,
    most_with: float,
) -> None:
    blocks = values(np.random.default_rng(1))
    assert relative_error(blocks, plain(blocks)) > least_without
    assert lost(number_format, blocks.ravel().astype(np.float32)) < most_with


@pytest.mark.parametrize("number_format", FORMATS)
def test_the_bytes_are_the_same_on_every_machine(number_format: Rotated) -> None:
    values = ((np.arange(1000) * 7919 % 1009 - 504) / 1024).astype(np.float32)
    numbers = number_format.encode(values)
    decoded = number_format.decode(numbers, values.size)
    content = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in (*numbers, decoded))
    assert hashlib.sha256(content).hexdigest() == GOLDEN[number_format.name]


@pytest.mark.parametrize("number_format", FORMATS)
def test_small_tensors_are_int8(number_format: Rotated) -> None:
    assert [type(number_format.of_size(size)) for size in (0, 1, 255)] == [Int8] * 3
    assert number_format.of_size(256) is number_format


@pytest.mark.parametrize("number_format", FORMATS)
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, 2.0**91])
def test_an_invalid_scale_is_found(number_format: Rotated, scale: float) -> None:
    scales, packed = number_format.encode(normal(300))
    for place in (0, 1):
        wrong = scales.copy()
        wrong[place] = scale
        assert "scale" in number_format.find_problem([wrong, packed], 300)


@pytest.mark.parametrize("number_format", FORMATS)
def test_the_largest_scale_is_valid_and_gives_finite_values(number_format: Rotated) -> None:
    scales, packed = number_format.encode(normal(304))
    extreme = [np.full_like(scales, 2.0**90), np.full_like(packed, 255)]
    assert number_format.find_problem(extreme, 304) == ""
    assert abs(number_format.decode(extreme, 304)).max() <= 2.0**102


@pytest.mark.parametrize(("number_format", "size", "used"), [(Rotated4(), 301, 4), (Rotated1(), 301, 5)])
def test_bits_after_the_last_value_are_found(number_format: Rotated, size: int, used: int) -> None:
    scales, packed = number_format.encode(normal(size))
    for bit in range(8):
        wrong = packed.copy()
        wrong[-1] |= 1 << bit
        assert ("bits" in number_format.find_problem([scales, wrong], size)) == (bit >= used)
