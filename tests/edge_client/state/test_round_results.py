"""A round's files before they are the device's state: those of the job, and those that the trainer left."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_results import (
    RoundResults,
    result_file,
    result_roles,
    save_results,
    with_kept_files,
    written_files,
)
from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState
from moonfed.encodings import ENCODED_MODEL, Encodings, parse_encodings
from moonfed.errors import TrainingFailed
from moonfed.fleet.assignment import AttemptId
from tests.edge_client.conftest import TASK, Bundle

LOSSLESS, LOSSY = parse_encodings("", "float32+zstd"), parse_encodings("", "int8")


@pytest.fixture
def manifest(bundle: Bundle) -> Manifest:
    spec = (TensorSpec("w", (2,), "parameter"),)
    return replace(
        bundle.manifest, previous_models=2, uplink={"variate_change": spec}, device_state={"device_variate": spec}
    )


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    return RunState(tmp_path / "runs", "tested", manifest=TASK, seed=1)


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., RoundResults]:
    """Write a file for each role, as a trainer does."""

    def write(*roles: str) -> RoundResults:
        directory = tmp_path / "out"
        directory.mkdir(exist_ok=True)
        for role in roles:
            result_file(directory, role).write_text(role)
        return RoundResults(directory=directory, samples=5, steps=3, metrics={"loss": 0.5})

    return write


def test_the_roles_follow_the_manifest_the_encodings_and_the_clip(
    manifest: Manifest, new_job: Callable[..., Job]
) -> None:
    plain = ("model", "variate_change", "device_variate")
    assert result_roles(manifest, new_job()) == plain
    assert result_roles(manifest, new_job(clip_norm=0.5)) == (*plain, ENCODED_MODEL)
    assert result_roles(manifest, new_job(encodings=LOSSLESS)) == (*plain, ENCODED_MODEL)
    assert result_roles(manifest, new_job(encodings=LOSSY)) == (*plain, ENCODED_MODEL, MODEL_ERROR)


@pytest.fixture
def written(manifest: Manifest, new_job: Callable[..., Job]) -> Callable[[Encodings], set[str]]:
    return lambda encodings: set(written_files(manifest, new_job(encodings=encodings)))


def test_the_files_that_a_round_writes_are_its_results_and_the_decoded_model(
    written: Callable[[Encodings], set[str]],
) -> None:
    plain = {f"{role}.safetensors" for role in ("model", "variate_change", "device_variate")}
    assert written(Encodings()) == plain
    assert written(LOSSY) == {*plain, f"{ENCODED_MODEL}.safetensors", f"{MODEL_ERROR}.safetensors"}
    assert written(parse_encodings("bfloat16", "")) >= {*plain, "initial_model"}


def test_a_compressed_file_is_written_with_an_uncompressed_one_next_to_it(
    written: Callable[[Encodings], set[str]],
) -> None:
    down = written(parse_encodings("bfloat16+zstd", ""))
    assert down - written(parse_encodings("bfloat16", "")) == {"initial_model.plain"}
    up = written(parse_encodings("", "int8+zstd"))
    assert up - written(LOSSY) == {f"{ENCODED_MODEL}.safetensors.plain"}


def test_results_are_moved_into_the_state(
    state: RunState, manifest: Manifest, new_job: Callable[..., Job], results: Callable[..., RoundResults]
) -> None:
    written = results("model", "variate_change", "device_variate")
    stored = save_results(state, replace(new_job(), personal_lost=True), manifest, written)
    assert not list(written.directory.iterdir())
    assert set(stored.update.blobs) == {"model", "variate_change"}
    assert set(stored.update.kept) == {"device_variate"}
    assert (stored.update.samples, stored.update.steps, stored.update.metrics) == (5, 3, {"loss": 0.5})
    assert stored.update.personal_lost
    assert state.find(1, 1, TASK) == stored


def test_an_encoded_model_is_submitted_in_place_of_the_model(
    state: RunState, manifest: Manifest, new_job: Callable[..., Job], results: Callable[..., RoundResults]
) -> None:
    roles = result_roles(manifest, new_job(encodings=LOSSY))
    stored = save_results(state, new_job(encodings=LOSSY), manifest, results(*roles))
    assert set(stored.update.kept) == {"model", "device_variate", MODEL_ERROR}
    assert stored.outgoing["model"][1].read_text() == ENCODED_MODEL


def link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("secret")
    file.symlink_to(tmp_path / "key.pem")


def hard_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("secret")
    os.link(tmp_path / "key.pem", file)


def nothing(file: Path, tmp_path: Path) -> None:
    """Leave no file."""


@pytest.mark.parametrize(
    ("leave", "message"),
    [
        (link, "left a model.safetensors that is not a plain file"),
        (hard_link, "left a model.safetensors that is not a plain file"),
        (lambda file, _: os.mkfifo(file), "left a model.safetensors that is not a plain file"),
        (lambda file, _: file.mkdir(), "left a model.safetensors that is not a plain file"),
        (nothing, "left no model.safetensors"),
        (lambda file, _: file.touch(), "left an empty model.safetensors"),
    ],
    ids=["link", "hard link", "pipe", "directory", "nothing", "what was created for it"],
)
def test_what_an_escaped_plan_could_leave_is_not_stored(
    leave: Callable[[Path, Path], object],
    message: str,
    state: RunState,
    manifest: Manifest,
    new_job: Callable[..., Job],
    results: Callable[..., RoundResults],
    tmp_path: Path,
) -> None:
    written = results("variate_change", "device_variate")
    leave(result_file(written.directory, "model"), tmp_path)
    with pytest.raises(TrainingFailed, match=f"the plan's process {message}"):
        save_results(state, new_job(), manifest, written)
    assert state.find(1, 1, TASK) is None


def test_a_job_gets_the_models_and_the_state_of_earlier_rounds(
    state: RunState, manifest: Manifest, new_job: Callable[..., Job], results: Callable[..., RoundResults]
) -> None:
    roles = result_roles(manifest, new_job(encodings=LOSSY))
    for number in (1, 2, 3):
        counted = AttemptId(run="tested", round=number - 1, attempt=1) if number > 1 else None
        save_results(state, new_job(round=number, counted=counted, encodings=LOSSY), manifest, results(*roles))
    job = with_kept_files(new_job(round=4, counted_round=2, encodings=LOSSY), state, manifest)
    assert [Path(file).parent.name for file in job.previous_models] == ["3-1", "2-1"]
    assert {role: Path(file).parent.name for role, file in job.kept.items()} == {
        "device_variate": "2-1",
        MODEL_ERROR: "2-1",
    }
    plain = with_kept_files(new_job(round=4, counted_round=2), state, manifest)
    assert set(plain.kept) == {"device_variate"}
    first = with_kept_files(new_job(), state, manifest)
    assert (first.previous_models, first.kept) == ((), {})
