"""Samples of a device, counted by class, label or pixel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, UNKNOWN, TargetSpec, class_target
from moonfed.edge_client.data.class_counts import count_samples

PIXELS = np.array([[[0, 0], [1, 1]], [[1, 1], [1, UNKNOWN]], [[1, 2], [1, 1]], [[0, 0], [0, 0]]], np.uint8)


@pytest.mark.parametrize(
    ("target", "targets", "counts"),
    [
        (class_target(("a", "b", "c")), np.array([2, 0, 2, 2]), (1, 0, 3)),
        (
            TargetSpec(kind="labels", names=("a", "b"), shape=(2,)),
            np.array([[1, 0], [1, 1], [UNKNOWN, 0], [0, 1]], np.uint8),
            (2, 2),
        ),
        (TargetSpec(kind="mask", names=("a", "b", "c"), shape=(2, 2)), PIXELS, (2, 3, 1)),
        (TargetSpec(kind="values", names=("a",), shape=(1,)), np.ones((4, 1), np.float32), ()),
        (NO_TARGET, None, ()),
    ],
    ids=["class", "labels", "mask", "values", "none"],
)
def test_samples_are_counted_by_what_their_targets_name(
    bundle: Bundle, target: TargetSpec, targets: np.ndarray | None, counts: tuple[int, ...], tmp_path: Path
) -> None:
    arrays = {} if targets is None else {"targets": targets}
    np.savez(tmp_path / "d.npz", inputs=np.zeros((4, 2, 2, 1), np.uint8), **arrays)  # type: ignore[arg-type]
    sample = InputSpec(kind="image", shape=(2, 2, 1))
    found = count_samples(str(tmp_path / "d.npz"), replace(bundle.manifest, input=sample, target=target), 0.25)
    assert (found.total, found.held_out, found.trained) == (4, 1, 3)
    assert (found.counts, found.names) == (counts, target.names if counts else ())
