"""Encodings: arithmetic against other implementations, round trips, and invalid files."""

from __future__ import annotations

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from moonfed.blobs.schema import BFLOAT16, INT8
from moonfed.encodings import NUMBER_FORMATS, Encoding, Encodings, parse_encoding, require_usable
from moonfed.encodings.number_format import BLOCK, Floats, NumberFormat
from moonfed.errors import InvalidInput
from moonfed.registry import find_problem
from tests.support.number_formats import KNOWN, LARGEST_BFLOAT16, finite, quantise, restore, round_trip
from tests.support.refusals import refused

NUMBERS = ("float32", "bfloat16", "int8", "rotated4", "rotated1")
ALL = [name + suffix for name in NUMBERS for suffix in ("", "+zstd")]


@pytest.mark.parametrize("name", NUMBER_FORMATS)
def test_a_number_formats_entry_is_complete(name: str) -> None:
    entry = NUMBER_FORMATS[name]
    assert find_problem(name, entry, NumberFormat) == ""
    assert len({part.prefix for part in entry.parts}) == len(entry.parts)
    assert all(BLOCK % part.values == 0 for part in entry.parts)


def test_no_two_number_formats_give_the_same_values() -> None:
    """A format that falls through to float32, or to another format, would."""
    values = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    found = [round_trip(entry(), values).tobytes() for entry in NUMBER_FORMATS.values()]
    assert len(set(found)) == len(found)


def int8_by_definition(values: Floats) -> Floats:
    """Quantise element by element to the nearest of 255 multiples of a block's largest magnitude over 127."""
    found = []
    for start in range(0, len(values), 256):
        block = values[start : start + 256]
        scale = np.float32(max(abs(float(value)) for value in block)) / np.float32(127)
        found += [float(scale) * round(float(value) / float(scale)) if scale else 0.0 for value in block]
    return np.array(found, np.float32)


@given(arrays(np.uint32, 64))
def test_bfloat16_is_rounded_as_ml_dtypes_rounds_it(bits: np.ndarray) -> None:
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    words, scales = quantise(values, BFLOAT16)
    with np.errstate(over="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(restore(words, scales), np.clip(expected, -LARGEST_BFLOAT16, LARGEST_BFLOAT16))
    assert scales.size == 0


def test_bfloat16_ties_go_to_even() -> None:
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000], np.uint32).view(np.float32)
    assert quantise(ties, BFLOAT16)[0].tolist() == [0x3F80, 0x3F82, 0xBF80]


@given(st.integers(1, 700), st.integers(0, 2**32), st.floats(-20, 20))
def test_int8_is_the_nearest_of_its_blocks_multiples(size: int, seed: int, power: float) -> None:
    values = (np.random.default_rng(seed).normal(size=size) * 10**power).astype(np.float32)
    numbers, scales = quantise(values, INT8)
    assert numbers.dtype == np.int8
    assert len(scales) == -(-size // 256)
    assert abs(numbers.astype(int)).max() == 127
    np.testing.assert_allclose(restore(numbers, scales), int8_by_definition(values), rtol=1e-5)


@given(arrays(np.float32, st.integers(1, 600), elements=finite))
def test_int8_is_off_by_half_a_scale_at_most_and_never_not_finite(values: Floats) -> None:
    numbers, scales = quantise(values, INT8)
    found = restore(numbers, scales).astype(np.float64)
    assert np.isfinite(found).all()
    of_value = np.repeat(scales.astype(np.float64), 256)[: len(values)]
    smallest = 127 * float(np.finfo(np.float32).smallest_subnormal)
    assert (abs(found - values) <= of_value * (0.5 + 1e-4) + smallest).all()


def test_a_devices_light_process_names_encodings_without_numpy() -> None:
    script = (
        "import sys; from moonfed.encodings import known_encodings; print('numpy' in sys.modules, *known_encodings())"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert output == ["False", *ALL]


@pytest.mark.parametrize("name", KNOWN)
def test_names_are_read_and_written(name: str) -> None:
    assert str(parse_encoding("up", name)) == name
    given = Encodings(down=parse_encoding("down", name))
    assert Encodings.from_document(json.loads(json.dumps(given.to_document()))) == given


def test_an_unknown_name_is_rejected() -> None:
    with refused(InvalidInput, "up", "int8+gzip"):
        parse_encoding("up", "int8+gzip")
    assert parse_encoding("up", "") == Encoding()
    assert BLOCK == 256


@pytest.mark.parametrize("name", ["rotated4", "rotated1+zstd"])
def test_formats_for_updates_only_are_rejected_for_models(name: str) -> None:
    require_usable("int8+zstd", name)
    with refused(InvalidInput, "downlink_encoding", name):
        require_usable(name, "")
