"""The class means in a device's update: which classes have enough samples, and nothing else about the labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.manifest import CLASS_MEANS
from moonfed.edge_client.state.round_store import StoredRound
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.export.methods import METHODS
from tests.edge_client.conftest import Bundle, job_maker, new_bundle
from tests.support.in_process_training import InProcessTraining

COUNTS = ([10, 9, 23], [41, 0, 1], [9, 9, 9])
Counted = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def fedssc(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return new_bundle(tmp_path_factory.mktemp("fedssc"), "fedssc", METHODS["fedssc"]())


def trained(bundle: Bundle, counts: Sequence[int], directory: Path) -> StoredRound:
    """Train a round on that many samples of each class."""
    labels = np.repeat(np.arange(len(counts)), counts)
    inputs = np.random.default_rng(1).normal(size=(len(labels), 6)) + 3 * np.eye(6)[labels]
    np.savez(directory / "samples.npz", inputs=inputs.astype(np.float32), labels=labels)
    settings = WorkerSettings(
        state=str(directory), device="cam-1", data=str(directory / "samples.npz"), accelerator="cpu", holdout=0.0
    )
    return InProcessTraining(settings).train(job_maker(bundle, BlobDirectory(directory / "blobs"))())


@pytest.mark.parametrize("counts", COUNTS)
def test_an_update_shares_means_of_classes_with_ten_samples_and_zeros_for_others(
    counts: list[int], fedssc: Bundle, tmp_path: Path
) -> None:
    specs = fedssc.manifest.uplink[CLASS_MEANS]
    stored = trained(fedssc, counts, tmp_path)
    tensors = split(np.array(open_model(stored.outgoing[CLASS_MEANS][1], specs)), specs)
    assert tensors["mask"].tolist() == [float(count >= 10) for count in counts]
    for count, mean in zip(counts, tensors["means"], strict=True):
        assert mean.any() == (count >= 10)
        assert np.signbit(mean).any() <= (count >= 10), "nor any bit"


@pytest.mark.parametrize("counts", COUNTS)
def test_no_count_of_a_class_is_in_an_update(counts: list[int], fedssc: Bundle, tmp_path: Path) -> None:
    """Search each file of the update for each count, in any alignment, and its metrics."""
    stored = trained(fedssc, counts, tmp_path)
    files = {role: path.read_bytes() for role, (_, path) in stored.outgoing.items()}
    assert set(files) == {"model", CLASS_MEANS}
    for count in (count for count in counts if count > 1):  # the mask holds 0 and 1
        for kind in ("<f4", "<f8", "<i8"):
            sought = np.array(count, kind).tobytes()
            assert [role for role, content in files.items() if sought in content] == [], (count, kind)
        assert float(count) not in stored.update.metrics.values()
