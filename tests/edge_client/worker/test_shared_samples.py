"""Samples on their way from the reader to the trainer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.data.data_set import DataSet
from moonfed.data.storage import Storage
from moonfed.edge_client.worker.shared_samples import map_samples, write_samples
from moonfed.sandbox.sandboxed_process import shared_file

CLASSES = class_target(30)
MASKS = TargetSpec(kind="mask", names=("road", "car", "sky"), shape=(3, 5))


def test_samples_are_as_the_data_source_gave_them() -> None:
    spec, generator = InputSpec(kind="image", shape=(3, 5, 1)), np.random.default_rng(0)
    written, readable = shared_file()
    for count, holdout in ((7, 0.3), (30, 0.0), (1, 0.0), (0, 0.0)):
        inputs = generator.integers(0, 256, (count, 3, 5, 1), dtype=np.uint8)
        samples = DataSet(inputs=inputs, targets=np.arange(count), target=CLASSES)
        trained_on, kept, classes, _ = write_samples(written, samples, spec, holdout)
        counts = trained_on, kept
        assert counts == (count - round(count * holdout), round(count * holdout))
        trained, held_out = map_samples(readable, spec, CLASSES, *counts)
        assert sorted([*trained.targets, *held_out.targets]) == list(range(count))
        assert classes == sorted(trained.targets), "those that are only held out do not count"
        assert np.array_equal(trained.inputs, inputs[trained.targets])
        assert np.array_equal(held_out.inputs, inputs[held_out.targets])
        trained.inputs[...] = 0  # a plan may change its own copy
        again, _ = map_samples(readable, spec, CLASSES, *counts)
        assert np.array_equal(again.inputs, inputs[again.targets])


def test_samples_without_room_in_memory_stay_in_their_files(tmp_path: Path) -> None:
    spec, generator = InputSpec(kind="image", shape=(3, 5, 1)), np.random.default_rng(0)
    inputs, masks = (generator.integers(0, 3, (30, *shape), np.uint8) for shape in ((3, 5, 1), (3, 5)))
    storage, target = Storage(tmp_path, 0), MASKS
    samples = DataSet(inputs=inputs, targets=masks, target=target)
    mapped = replace(samples, inputs=storage.keep("inputs", inputs), targets=storage.keep("targets", masks))
    written, readable = shared_file()
    for some, names in ((mapped, {"inputs", "targets"}), (replace(mapped, targets=masks), {"inputs"})):
        *_, none = write_samples(written, some, spec, 0.2, room=900)
        assert none == {}, "there is room for both"
        expected = map_samples(readable, spec, target, 24, 6)
        wanted = [(part.inputs.copy(), part.targets.copy()) for part in expected]
        *_, files = write_samples(written, some, spec, 0.2, room=899)
        assert files.keys() == names
        opened = {name: (os.open(path, os.O_RDONLY), begin) for name, (path, begin) in files.items()}
        parts = map_samples(readable, spec, target, 24, 6, opened)
        for part, (some_inputs, some_targets) in zip(parts, wanted, strict=True):
            part.expect(range(2))
            found = part.chunk(slice(None))
            assert np.array_equal(found[0], some_inputs)
            assert np.array_equal(found[1], some_targets)
            assert not part.inputs.flags.writeable
