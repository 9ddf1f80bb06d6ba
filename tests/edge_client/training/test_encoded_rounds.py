"""Encoded models on a device: initial model, submitted change, and error feedback."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.blobs.store import ref_of_file
from moonfed.blobs.tensors import TensorSpec, Vector, open_model, write_model
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState, StoredRound
from moonfed.edge_client.training.local_training import Samples
from moonfed.edge_client.training.round_files import train_job
from moonfed.encodings import parse_encoding, parse_encodings
from moonfed.errors import SchemaMismatch
from tests.edge_client.conftest import TASK, Bundle
from tests.support.recording import RecordingPlan

SPECS = (TensorSpec("norm.var", (3,), "statistic"), TensorSpec("w", (300,), "parameter"))
PARAMETERS = SPECS[1:]
DATA = Samples(inputs=torch.zeros(8, 6), targets=torch.zeros(8, dtype=torch.int64))
START = np.random.default_rng(0).normal(size=303).astype(np.float32)
Train = Callable[..., StoredRound]


@pytest.fixture
def manifest(bundle: Bundle) -> Manifest:
    """Manifest of a model with one tensor of each kind, whose devices keep a state."""
    return replace(
        bundle.manifest, tensors=SPECS, device_state={"device_variate": (TensorSpec("w", (2,), "parameter"),)}
    )


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    return RunState(tmp_path / "runs", "tested", manifest=TASK, seed=1)


@pytest.fixture
def train(manifest: Manifest, state: RunState, new_job: Callable[..., Job], tmp_path: Path) -> Train:
    """One round that results in the given model; the plan records its initial model."""

    def train(
        trained: Vector, plan: RecordingPlan | None = None, start: Path | None = None, **job: object
    ) -> StoredRound:
        plan = plan or RecordingPlan()
        plan.results = {
            "model": [torch.from_numpy(trained[:3]), torch.from_numpy(trained[3:])],
            "device_variate": [torch.ones(2)],
        }
        if start is None:
            start = tmp_path / "start"
            write_model(start, SPECS, [START])
        return train_job(plan, DATA, None, state, new_job({"model": str(start)}, **job), manifest, "cam-1")

    return train


def after(seed: int, deviation: float = 0.01) -> Vector:
    """A trained model whose variances are positive."""
    trained = START + np.random.default_rng(seed).normal(0, deviation, 303).astype(np.float32)
    return np.concatenate([abs(trained[:3]), trained[3:]]).astype(np.float32)


def sent(stored: StoredRound) -> Vector:
    """Return the change in an int8 update, by the format's definition."""
    tensors = load_file(stored.outgoing["model"][1])
    scales: Vector = np.repeat(tensors["scales:w"].numpy(), 256)[:300]
    return scales * np.asarray(tensors["values:w"].numpy(), np.float32)


def error(stored: StoredRound) -> Vector:
    return open_model(stored.file(MODEL_ERROR), PARAMETERS)


def test_the_encoded_change_is_submitted_and_the_model_stays(train: Train) -> None:
    stored = train(after(1), encodings=parse_encodings("", "int8"))
    assert sorted(stored.outgoing) == ["model"]
    ref, file = stored.outgoing["model"]
    assert ref_of_file(file) == ref
    assert file.stat().st_size < 0.27 * 4 * 303 + 1000, "a quarter, and a header"
    change = after(1)[3:] - START[3:]
    np.testing.assert_allclose(sent(stored), change, atol=abs(change).max() / 254 * 1.001)
    assert np.array_equal(open_model(stored.model_file, SPECS), after(1)), "the next rounds' previous model"
    statistics = load_file(file)["values:norm.var"]
    assert torch.equal(statistics, torch.from_numpy(after(1)[:3]).bfloat16())
    assert not list(stored.directory.parent.glob(".*")), "nothing is left lying about"


def test_the_encoding_error_of_a_counted_update_is_added_to_the_next_change(train: Train) -> None:
    first = train(after(1), encodings=parse_encodings("", "int8"))
    np.testing.assert_allclose(error(first), after(1)[3:] - START[3:] - sent(first), atol=1e-9)
    second = train(after(2), encodings=parse_encodings("", "int8"), round=2, counted_round=1)
    wanted = (after(1)[3:] - START[3:]) + (after(2)[3:] - START[3:])
    np.testing.assert_allclose(sent(first) + sent(second) + error(second), wanted, atol=1e-7)
    assert abs(sent(second) + error(second) - (after(2)[3:] - START[3:])).max() > 1e-6, "it is not the change alone"


@pytest.mark.parametrize("name", ["rotated4", "rotated1+zstd"])
def test_the_error_of_a_coarse_encoding_is_sent_in_later_rounds(name: str, train: Train, tmp_path: Path) -> None:
    encodings, wanted, arrived = parse_encodings("", name), np.zeros(300), np.zeros(300)
    for number in range(1, 5):
        stored = train(after(number), encodings=encodings, round=number, counted_round=number - 1)
        decode_model(stored.outgoing["model"][1], tmp_path / "sent", SPECS, encodings.up)
        wanted += after(number)[3:] - START[3:]
        arrived += open_model(tmp_path / "sent", SPECS)[3:]
    np.testing.assert_allclose(arrived + error(stored), wanted, atol=1e-6)
    assert np.linalg.norm(arrived - wanted) < 0.6 * np.linalg.norm(wanted)


def test_the_encoding_error_of_an_uncounted_update_is_discarded(train: Train) -> None:
    """Count no error of a change that has not arrived, for example in an abandoned round."""
    first = train(after(1), encodings=parse_encodings("", "int8"))
    train(after(2), encodings=parse_encodings("", "int8"), round=2, counted_round=1)
    again = train(after(2), encodings=parse_encodings("", "int8"), round=2, attempt=2, counted_round=1)
    np.testing.assert_allclose(sent(again) + error(again), after(2)[3:] - START[3:] + error(first), atol=1e-7)
    alone = train(after(3), encodings=parse_encodings("", "int8"), round=3)
    np.testing.assert_allclose(sent(alone) + error(alone), after(3)[3:] - START[3:], atol=1e-7)


def test_a_lost_error_is_logged_and_leaves_the_methods_state_alone(
    train: Train, state: RunState, caplog: pytest.LogCaptureFixture
) -> None:
    first = train(after(1), encodings=parse_encodings("", "int8"))
    first.file(MODEL_ERROR).write_bytes(b"damaged")
    plan = RecordingPlan()
    with caplog.at_level(logging.WARNING):
        second = train(after(2), plan, encodings=parse_encodings("", "int8"), round=2, counted_round=1)
    assert "its model_error differs" in caplog.text
    np.testing.assert_allclose(sent(second) + error(second), after(2)[3:] - START[3:], atol=1e-7)
    _, _, received, _ = plan.began
    assert "device_variate" in dict(received)  # type: ignore[call-overload]


@pytest.mark.parametrize("encoding", ["bfloat16", "bfloat16+zstd", "float32+zstd"])
def test_a_round_begins_with_the_decoded_model_and_the_change_is_from_there(
    encoding: str, train: Train, tmp_path: Path
) -> None:
    write_model(tmp_path / "start", SPECS, [START])
    encode_model(tmp_path / "start", tmp_path / "encoded", SPECS, parse_encoding("down", encoding))
    plan = RecordingPlan()
    stored = train(after(1), plan, tmp_path / "encoded", encodings=parse_encodings(encoding, "int8"))
    begun = START if encoding.startswith("float32") else torch.from_numpy(START).bfloat16().float().numpy()
    model, *_ = plan.began
    assert torch.equal(torch.cat(list(model)), torch.from_numpy(begun))  # type: ignore[call-overload]
    np.testing.assert_allclose(sent(stored) + error(stored), after(1)[3:] - begun[3:], atol=1e-7)


def test_a_rounded_model_is_answered_with_a_change_even_in_float32(train: Train, tmp_path: Path) -> None:
    write_model(tmp_path / "start", SPECS, [START])
    encode_model(tmp_path / "start", tmp_path / "encoded", SPECS, parse_encoding("down", "bfloat16"))
    stored = train(after(1), None, tmp_path / "encoded", encodings=parse_encodings("bfloat16", ""))
    begun = torch.from_numpy(START).bfloat16().float().numpy()
    change = np.concatenate([after(1)[:3], after(1)[3:] - begun[3:]])
    assert np.array_equal(open_model(stored.outgoing["model"][1], SPECS), change)
    assert not stored.file(MODEL_ERROR).exists(), "nothing is lost"


def test_a_plain_run_hands_in_the_models_own_file(train: Train) -> None:
    stored = train(after(1), encodings=parse_encodings("float32", "float32"))
    assert stored.outgoing["model"][1] == stored.model_file
    assert sorted(path.name for path in stored.directory.iterdir()) == [
        "device_variate.safetensors",
        "model.safetensors",
        "update.json",
    ]


def test_a_private_run_hands_in_the_clipped_model_and_keeps_its_own(train: Train, state: RunState) -> None:
    stored = train(after(1), clip_norm=0.05)
    _, file = stored.outgoing["model"]
    change = open_model(file, SPECS)[3:].astype(np.float64) - START[3:]
    wanted = after(1)[3:].astype(np.float64) - START[3:]
    np.testing.assert_allclose(change, wanted * 0.05 / np.linalg.norm(wanted), atol=1e-6)
    assert np.linalg.norm(change) <= 0.05 * (1 + 1e-6)
    assert np.array_equal(open_model(stored.model_file, SPECS), after(1)), "the next rounds' previous model"
    assert stored.update.metrics["loss"] == 1.5, "the device keeps its metrics"
    assert state.find(1, 1, TASK) == stored


def test_a_model_in_another_encoding_than_assigned_is_rejected_before_training(train: Train, tmp_path: Path) -> None:
    plan = RecordingPlan()
    write_model(tmp_path / "start", SPECS, [START])
    with pytest.raises(SchemaMismatch, match=r"tensor 'norm\.var' is"):
        train(after(1), plan, tmp_path / "start", encodings=parse_encodings("int8", ""))
    assert plan.calls == []


def test_a_round_that_was_trained_before_is_found_with_its_encoded_file(train: Train, state: RunState) -> None:
    stored = train(after(1), encodings=parse_encodings("", "int8"))
    assert state.find(1, 1, TASK) == stored
    assert [kept.key for kept in state.previous(2, 1, 1)] == [(1, 1)]
    stored.outgoing["model"][1].write_bytes(b"damaged")
    assert state.find(1, 1, TASK) is None
    assert [kept.key for kept in state.previous(2, 1, 1)] == [(1, 1)], "the model itself is whole"
