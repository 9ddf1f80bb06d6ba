"""Samples on their way from the reader to the trainer."""

from __future__ import annotations

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.edge_client.worker.shared_samples import map_samples, write_samples
from moonfed.sandbox.sandboxed_process import shared_file

CLASSES = class_target(30)


def test_samples_are_as_the_data_source_gave_them() -> None:
    spec, generator = InputSpec(kind="image", shape=(3, 5, 1)), np.random.default_rng(0)
    written, readable = shared_file()
    for count, holdout in ((7, 0.3), (30, 0.0), (1, 0.0), (0, 0.0)):
        inputs = generator.integers(0, 256, (count, 3, 5, 1), dtype=np.uint8)
        samples = DataSet(inputs=inputs, targets=np.arange(count), target=CLASSES)
        *counts, classes = write_samples(written, samples, spec, holdout)
        assert counts == [count - round(count * holdout), round(count * holdout)]
        trained, held_out = map_samples(readable, spec, CLASSES, *counts)
        assert sorted([*trained.targets, *held_out.targets]) == list(range(count))
        assert classes == sorted(trained.targets), "those that are only held out do not count"
        assert np.array_equal(trained.inputs, inputs[trained.targets])
        assert np.array_equal(held_out.inputs, inputs[held_out.targets])
        trained.inputs[...] = 0  # a plan may change its own copy
        again, _ = map_samples(readable, spec, CLASSES, *counts)
        assert np.array_equal(again.inputs, inputs[again.targets])
