"""Noise is normal, independent, and the same however it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from moonfed.coordinator.draw import Draw
from moonfed.coordinator.privacy.noise import GaussianNoise, count_key, noise_key
from tests.support.aggregation_rounds import DRAW

KEY = bytes(range(32))
VALUES = 1_000_000
WHOLE = GaussianNoise(KEY).normal(0, 5000)


def test_values_are_box_and_mullers_of_the_keys_blocks() -> None:
    blocks = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()  # noqa: S305 - a counter's blocks one by one
    for index in range(100):
        block = blocks.update(index.to_bytes(16, "big"))
        first, second = (1 - (int.from_bytes(half, "little") >> 12) / 2**52 for half in (block[:8], block[8:]))
        radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * (second - 0.5)
        expected = [radius * np.cos(angle), radius * np.sin(angle)]
        np.testing.assert_allclose(WHOLE[2 * index : 2 * index + 2], expected, rtol=1e-9, atol=1e-12)


def test_values_are_standard_normal() -> None:
    values = GaussianNoise(KEY).normal(0, VALUES)
    assert np.isfinite(values).all()
    assert stats.kstest(values, "norm").pvalue > 0.001
    assert np.abs(values).max() > 4.5


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5])
def test_values_do_not_depend_on_their_neighbours(distance: int) -> None:
    values = GaussianNoise(KEY).normal(0, VALUES)
    for power in (1, 2):
        correlation = np.corrcoef(values[:-distance] ** power, values[distance:] ** power)[0, 1]
        assert abs(correlation) < 5 / np.sqrt(VALUES)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_any_range_has_the_same_values(one: int, other: int) -> None:
    start, stop = sorted((one, other))
    np.testing.assert_array_equal(GaussianNoise(KEY).normal(start, stop), WHOLE[start:stop])


def test_values_exist_at_every_index() -> None:
    far = 2 * 10**12
    both = GaussianNoise(KEY).normal(far - 1, far + 3)
    np.testing.assert_array_equal(both[1:], GaussianNoise(KEY).normal(far, far + 3))


def test_keys_differ_in_purpose_round_attempt_digest_and_secret() -> None:
    other = Draw(bytes(32))
    keys = {
        noise_key(DRAW, 1, 2, "ab"),
        noise_key(DRAW, 2, 2, "ab"),
        noise_key(DRAW, 1, 1, "ab"),
        noise_key(DRAW, 1, 2, "ac"),
        noise_key(other, 1, 2, "ab"),
        count_key(DRAW, 1, 2, "ab"),
        DRAW.digest("1/2", "ab"),  # of a cohort's draw
    }
    assert len(keys) == 7
    values = [GaussianNoise(key).normal(0, 100_000) for key in keys]
    assert np.abs(np.corrcoef(values) - np.eye(7)).max() < 5 / np.sqrt(100_000)
