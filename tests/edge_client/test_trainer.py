"""The child's work for one round, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_client.messages import Job, WorkerSettings
from edge_client.state import RunState
from edge_client.trainer import Trainer
from moonfed.errors import InvalidInput, TrainingFailed
from tests.edge_client.conftest import Bundle, write_samples


def trainer(state: Path, data: object) -> Trainer:
    settings = WorkerSettings(state=str(state), device="cam-1", data=str(data), accelerator="cpu", holdout=0.0)
    return Trainer(settings, lambda: None, lambda _: None)


def test_too_few_samples_are_named(new_job: Callable[..., Job], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="this device has 1 samples to train on; the plan needs at least 2"):
        trainer(tmp_path, write_samples(tmp_path / "one.npz", count=1)).train(new_job())


def test_data_that_do_not_fit_are_named(
    new_job: Callable[..., Job],
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    data = user_module("return np.zeros((4, 5), np.float32), [0, 1, 2, 0]")
    with pytest.raises(InvalidInput, match=r"have shape \[4, 5\]; the bundle takes \[N, 6\]"):
        trainer(tmp_path, data).train(new_job())


def test_training_that_diverges_is_a_failure_and_leaves_no_model(
    new_job: Callable[..., Job], samples: Path, bundle: Bundle, tmp_path: Path
) -> None:
    wild = {**bundle.manifest.hyperparameters, "learning_rate": 1e30}
    with pytest.raises(TrainingFailed, match=r"local training diverged: tensor '.*' holds NaN"):
        trainer(tmp_path, samples).train(new_job(hyperparameters=wild))
    assert RunState(tmp_path / "runs", "tested").previous(9, 9, 9) == []
