"""The trainer's work for one round, in this process."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.store import BlobDirectory
from moonfed.blobs.tensors import TensorSpec, open_model, split, write_model
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import InvalidInput, TrainingFailed
from tests.edge_client.conftest import Bundle, job_maker, write_samples
from tests.support.in_process_training import InProcessTraining
from tests.support.refusals import refused

Vector = npt.NDArray[np.float32]


def trainer(state: Path, data: object, **fields: str) -> InProcessTraining:
    settings = WorkerSettings(
        state=str(state), device="cam-1", data=str(data), accelerator="cpu", holdout=0.0, **fields  # type: ignore[arg-type]
    )  # fmt: skip
    return InProcessTraining(settings)


def test_too_few_samples_are_named(new_job: Callable[..., Job], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="this device has 1"):
        trainer(tmp_path, write_samples(tmp_path / "one.npz", count=1)).train(new_job())


@pytest.mark.parametrize("fields", [{"precision": "float8"}, {"memory_format": "sideways"}])
def test_precision_and_memory_format_reach_the_plan(
    fields: dict[str, str], new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=next(f"{name} is '{value}'; it must be" for name, value in fields.items())):
        trainer(tmp_path, samples, **fields).train(new_job())


def test_data_that_do_not_fit_are_named(
    new_job: Callable[..., Job],
    user_module: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    data = user_module("return np.zeros((4, 5), np.float32), [0, 1, 2, 0]")
    with refused(InvalidInput, "shape of inputs", [4, 5]):
        trainer(tmp_path, data).train(new_job())


def test_training_that_diverges_is_a_failure_and_leaves_no_model(
    new_job: Callable[..., Job], samples: Path, bundle: Bundle, tmp_path: Path
) -> None:
    wild = {**bundle.manifest.training.hyperparameters, "learning_rate": 1e30}
    with refused(TrainingFailed, "tensor"):
        trainer(tmp_path, samples).train(new_job(hyperparameters=wild))
    assert RunState(tmp_path / "runs", "tested", manifest=bundle.digest, seed=1).previous(9, 9, 9) == []


def read(stored: StoredRound, role: str, specs: tuple[TensorSpec, ...]) -> dict[str, Vector]:
    return split(np.array(open_model(stored.file(role), specs)), specs)


@pytest.fixture
def scaffold_job(scaffold: Bundle, tmp_path: Path) -> Callable[..., Job]:
    return job_maker(scaffold, BlobDirectory(tmp_path / "blobs"))


def test_device_state_is_promoted_only_when_its_round_was_counted(
    scaffold: Bundle, scaffold_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    """Compared with c_i⁺ = c_i − c + (w − w_i)/(K·lr), with the expected c_i."""
    parameters, rate = scaffold.manifest.parameters, scaffold.manifest.training.hyperparameters["learning_rate"]
    device = trainer(tmp_path, samples)
    (tmp_path / "w").write_bytes(scaffold.weights)
    start = split(np.array(open_model(tmp_path / "w", scaffold.manifest.tensors)), scaffold.manifest.tensors)
    generator = np.random.default_rng(5)
    variate = {spec.name: generator.normal(0, 0.01, spec.shape).astype(np.float32) for spec in parameters}
    write_model(tmp_path / "c", parameters, (variate[spec.name].ravel() for spec in parameters))

    def check(stored: StoredRound, own: dict[str, Vector], globally: dict[str, Vector]) -> dict[str, Vector]:
        """Compare with the c_i⁺ that the round left."""
        assert stored.update.steps == 10  # 40 samples in batches of eight, twice
        trained = read(stored, "model", scaffold.manifest.tensors)
        kept, change = read(stored, "device_variate", parameters), read(stored, "variate_change", parameters)
        for spec in parameters:
            name = spec.name
            slope = (start[name].astype(np.float64) - trained[name]) / (10 * rate)
            expected = own[name] - globally[name] + slope
            np.testing.assert_allclose(kept[name], expected, atol=2e-5)
            np.testing.assert_allclose(change[name], expected - own[name], atol=2e-5)
        return kept

    zeros = {spec.name: np.zeros(spec.shape, np.float32) for spec in parameters}
    files = {"variate": str(tmp_path / "c")}
    first = check(device.train(scaffold_job(round=1)), zeros, zeros)
    counted = {"counted_round": 1}
    second = check(device.train(scaffold_job(round=2, files=files, **counted)), first, variate)
    third = check(device.train(scaffold_job(round=3, files=files, **counted)), first, variate)  # 2 was not counted
    counted = {"counted_round": 3}
    check(trainer(tmp_path, samples).train(scaffold_job(round=4, files=files, **counted)), third, variate)
    assert any(not np.allclose(first[name], second[name], atol=1e-3) for name in first)
    assert sorted(path.name for path in (tmp_path / "runs" / "tested").iterdir()) == ["3-1", "4-1"]


def test_lost_device_state_counts_as_zeros_with_a_warning(
    scaffold: Bundle,
    scaffold_job: Callable[..., Job],
    samples: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = trainer(tmp_path, samples)
    kept = device.train(scaffold_job(round=1)).file("device_variate").read_bytes()
    counted = {"counted_round": 1}
    with_state = device.train(scaffold_job(round=2, **counted)).file("device_variate").read_bytes()
    without = trainer(tmp_path / "other", samples).train(scaffold_job(round=2)).file("device_variate").read_bytes()
    assert len({kept, with_state, without}) == 3
    shutil.rmtree(tmp_path / "runs" / "tested" / "1-1")
    with caplog.at_level(logging.WARNING):
        lost = device.train(scaffold_job(round=2, **counted))
    assert lost.file("device_variate").read_bytes() == without
    assert [record.args for record in caplog.records] == [(1, 1)]


def test_a_round_repeats_bit_for_bit(scaffold_job: Callable[..., Job], samples: Path, tmp_path: Path) -> None:
    def train(name: str, **fields: int) -> dict[str, bytes]:
        stored = trainer(tmp_path / name, samples).train(scaffold_job(**fields))
        return {file.name: file.read_bytes() for file in stored.directory.iterdir()}

    usual = train("one")
    assert sorted(usual) == [
        "device_variate.safetensors",
        "model.safetensors",
        "update.json",
        "variate_change.safetensors",
    ]
    assert train("two") == usual
    assert train("three", seed=2)["model.safetensors"] != usual["model.safetensors"]


def test_a_work_budget_is_stored_with_the_steps_that_were_taken(
    scaffold_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    stored = trainer(tmp_path, samples).train(scaffold_job(max_steps=7))
    assert stored.update.steps == 7
    assert json.loads((stored.directory / "update.json").read_text())["steps"] == 7


def test_global_state_that_does_not_fit_is_named(
    scaffold_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    wrong = TensorSpec("w", (2,), "parameter")
    write_model(tmp_path / "c", [wrong], [np.zeros(2, np.float32)])
    with pytest.raises(InvalidInput, match="tensor 'w' is not"):
        trainer(tmp_path, samples).train(scaffold_job(files={"variate": str(tmp_path / "c")}))
