"""FedSSC's prototypes: class means of uniformly drawn devices that share the class."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.coordinator.draw import Draw
from tests.support.aggregation_rounds import (
    CLASS_MEANS,
    PROTOTYPES,
    SIZE,
    Rounds,
    fedssc,
)

F64 = npt.NDArray[np.float64]


def shared(masks: list[list[int]], means: F64) -> F64:
    """Rows of class_means files; a class that is not shared has zeros."""
    table = np.array(masks, np.float64)
    zeroed = np.where(table[:, :, None] > 0, means, 0)
    return np.concatenate([table, zeroed.reshape(len(masks), -1)], axis=1)


def prototypes(played: Rounds, rows: F64) -> tuple[list[int], F64]:
    """Return the next round's prototypes, and which classes have one."""
    count = len(rows)
    played.next(np.zeros((count, SIZE)), [1] * count, class_means=(rows, CLASS_MEANS))
    values = played.memory("prototypes", PROTOTYPES)
    return [int(value) for value in values[:3]], values[3:].reshape(3, 2)


def test_all_devices_that_share_a_class_count_alike_in_its_prototype(tmp_path: Path) -> None:
    means = np.random.default_rng(2).normal(size=(3, 3, 2)).astype(np.float32).astype(np.float64)
    masks = [[1, 0, 1], [1, 0, 0], [0, 0, 1]]
    present, found = prototypes(Rounds(tmp_path, fedssc(0), np.zeros(SIZE)), shared(masks, means))
    assert present == [1, 0, 1]
    np.testing.assert_allclose(found[0], (means[0, 0] + means[1, 0]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_allclose(found[2], (means[0, 2] + means[2, 2]) / 2, rtol=1e-6)


def test_a_class_that_is_no_longer_shared_has_no_prototype(tmp_path: Path) -> None:
    played, means = Rounds(tmp_path, fedssc(0), np.zeros(SIZE)), np.ones((2, 3, 2))
    assert prototypes(played, shared([[1, 1, 1]] * 2, means))[0] == [1, 1, 1]
    assert prototypes(played, shared([[1, 0, 1]] * 2, means))[0] == [1, 0, 1]


def powers(devices: int) -> F64:
    """Return means whose sums identify the drawn devices: device i has 2^i in every class."""
    return np.broadcast_to(2.0 ** np.arange(devices)[:, None, None], (devices, 3, 2))


def drawn(prototype: float, k: int) -> list[int]:
    total = round(prototype * k)
    return [device for device in range(total.bit_length()) if total >> device & 1]


@pytest.mark.parametrize("k", [1, 2])
def test_k_devices_are_drawn_for_each_class_and_round_evenly(tmp_path: Path, k: int) -> None:
    played, often = Rounds(tmp_path, fedssc(k), np.zeros(SIZE)), Counter[int]()
    joint = Counter[bool]()
    for _ in range(200):
        _, found = prototypes(played, shared([[1, 1, 1]] * 4, powers(4)))
        chosen = [drawn(row[0], k) for row in found]
        assert all(len(devices) == k for devices in chosen)
        often.update(device for devices in chosen for device in devices)
        joint[chosen[0] == chosen[1]] += 1
    expected, deviation = 600 * k / 4, np.sqrt(600 * k / 4 * (1 - k / 4))
    assert all(abs(often[device] - expected) < 4 * deviation for device in range(4))
    assert joint[True] < 100, "classes draw by themselves"


def test_all_sharers_make_a_prototype_if_there_are_fewer_than_k(tmp_path: Path) -> None:
    played = Rounds(tmp_path, fedssc(3), np.zeros(SIZE))
    present, found = prototypes(played, shared([[1, 0, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0]], powers(4)))
    assert present == [1, 1, 1]
    assert len(drawn(found[0, 0], 3)) == 3
    assert (found[1, 0], found[2, 0]) == (2.0, 1.5)


def test_the_draw_depends_on_secret_and_round_and_on_nothing_else(tmp_path: Path) -> None:
    def course(name: str, secret: int, weights: int) -> list[bytes]:
        played = Rounds(tmp_path / name, fedssc(1), np.zeros(SIZE), draw=Draw(bytes([secret] * 32)))
        rows, files = shared([[1, 1, 1]] * 8, powers(8)), []
        for _ in range(6):
            played.next(np.zeros((8, SIZE)), [weights] * 8, class_means=(rows, CLASS_MEANS))
            files.append(played.state["prototypes"].read_bytes())
        return files

    first = course("first", 1, 1)
    assert first == course("again", 1, 99)
    assert first != course("other", 2, 1)
    assert len(set(first)) > 1, "each round draws again"
