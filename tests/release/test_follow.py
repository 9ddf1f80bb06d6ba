"""`moonfed-export follow`: which rounds are published, and that rolled-back versions are not published again."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import Vector
from moonfed.bundle.target import class_target
from moonfed.cli.program import app
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput, NotFound, UntrustedRelease
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient, connect
from moonfed.export.run_watcher import watch_run
from moonfed.export.scoring import Score
from moonfed.release.follow import Decision, FollowGate, ReleaseFollower
from moonfed.release.repository import ModelDirectory
from moonfed.signing.key_files import create_keys
from moonfed.signing.release_signature import read_release_key
from moonfed.tasks.regression import Regression
from moonfed.transport.operator_connection import Endpoint
from tests.export.conftest import another_model
from tests.release.conftest import NOWHERE
from tests.support.control_service import Control
from tests.support.pet_models import graph, release
from tests.support.refusals import refused
from tests.support.trained_model import Trained

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

PATIENCE = 120.0


@pytest.fixture
def runs(control: Control) -> Iterator[CoordinatorClient]:
    with connect(Endpoint(control.address, None)) as found:
        yield found


@pytest.fixture
def directory(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path / "models", "digits")


def good(trained: Trained, number: int) -> Vector:
    """Return a slightly different model that is as accurate as the trained one."""
    return np.asarray(trained.model * np.float32(1 + 1e-6 * number), dtype=np.float32)


def bad(trained: Trained, seed: int) -> Vector:
    return another_model(trained.bundle.manifest, seed)


def follower(
    runs: CoordinatorClient, directory: ModelDirectory, trained: Trained, decisions: list[Decision], *, kept: int = 5
) -> ReleaseFollower:
    return ReleaseFollower(
        runs, "r", directory, FollowGate(data=NpzSource(trained.test_file)), on_decision=decisions.append, kept=kept
    )


def rounds_in(directory: ModelDirectory) -> dict[int, str]:
    """Return the round in each version's metadata."""
    return {version: read_metadata(directory.model(version))["round"] for version in directory.versions()}


def accuracy(directory: ModelDirectory, version: int, trained: Trained) -> float:
    session = onnxruntime.InferenceSession(directory.model(version), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"inputs": trained.test.inputs})
    return float((np.asarray(probabilities).argmax(axis=1) == trained.test.labels).mean())


def test_only_the_newest_round_that_passes_is_published(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained
) -> None:
    decisions: list[Decision] = []
    following = follower(runs, directory, trained, decisions)
    assert following.catch_up()
    assert (decisions, directory.versions()) == ([], [])  # nobody trained round 0
    control.commit(good(trained, 1))
    control.commit(good(trained, 2))
    assert following.catch_up()
    assert rounds_in(directory) == {2: "2"}  # the older one is not looked at
    control.commit(bad(trained, 1))
    control.commit(bad(trained, 2))
    assert following.catch_up()
    assert directory.versions() == [2]
    assert following.catch_up()  # nothing new: nobody is judged again
    control.run.status = "paused"
    assert following.catch_up(), "a paused run may be resumed"
    control.commit(good(trained, 5))
    control.end()
    assert not following.catch_up()
    assert (rounds_in(directory), directory.served()) == ({2: "2", 5: "5"}, [5])
    assert [(found.round, found.served, found.published) for found in decisions] == [
        (2, None, True),
        (4, 2, False),
        (3, 2, False),
        (5, 2, True),
    ]
    first, second = decisions[0], decisions[1]
    assert first.score == pytest.approx(accuracy(directory, 2, trained))
    assert second.served_score == pytest.approx(first.score)
    assert second.score < first.score - 0.3
    assert {entry.name for entry in (directory.path / "5").iterdir()} == {
        *("model.onnx", "MODEL_CARD.md", "bom.cdx.json", "confusion.svg")
    }


def share(right: int, samples: int) -> Score:
    return Score(metrics={"accuracy": right / samples})


def error(rmse: float) -> Score:
    return Score(metrics={"rmse": rmse}, metric=Regression.metric)


def test_a_metric_that_falls_is_compared_in_percent() -> None:
    gate = FollowGate(data=NpzSource(NOWHERE), margin=5, at_least=60)
    assert [gate.passes(error(found), error(50.0)) for found in (40, 52, 53)] == [True, True, False]
    assert [gate.passes(error(found), None) for found in (60, 61)] == [True, False]


@pytest.mark.parametrize(
    ("margin", "right", "passes"), [(0, 100, True), (0, 99, False), (0.5, 99, True), (0.5, 98, False), (100, 0, True)]
)
def test_the_margin_is_in_percentage_points(margin: float, right: int, passes: bool) -> None:
    gate = FollowGate(data=NpzSource(NOWHERE), margin=margin)
    assert gate.passes(share(right, 200), share(100, 200)) == passes
    assert gate.passes(share(0, 200), None)


@pytest.mark.parametrize(
    ("at_least", "right", "served", "passes"),
    [(0, 0, None, True), (95, 95, None, True), (95, 94, None, False), (95, 94, 94, False), (95, 96, 97, False)],
)
def test_a_first_version_needs_a_minimum_accuracy_if_one_is_given(
    at_least: float, right: int, served: int | None, passes: bool
) -> None:
    assert (
        FollowGate(data=NpzSource(NOWHERE), at_least=at_least).passes(
            share(right, 100), None if served is None else share(served, 100)
        )
        is passes
    )


@pytest.mark.parametrize("at_least", [-0.1, float("inf"), float("nan")])
def test_a_minimum_below_0_is_rejected(at_least: float) -> None:
    with pytest.raises(InvalidInput, match="at-least is"):
        FollowGate(data=NpzSource(NOWHERE), at_least=at_least)


@pytest.mark.parametrize("margin", [-0.1, 100.5, float("nan")])
def test_a_margin_outside_0_to_100_is_rejected(margin: float) -> None:
    with refused(InvalidInput, "margin"):
        FollowGate(data=NpzSource(NOWHERE), margin=margin)


def test_a_rolled_back_version_is_not_published_again_but_a_later_one_is(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained
) -> None:
    decisions: list[Decision] = []
    following = follower(runs, directory, trained, decisions)
    for number in (1, 2, 3):
        control.commit(good(trained, number))
        following.catch_up()
    assert directory.roll_back() == (3, 2)
    following.catch_up()
    follower(runs, directory, trained, decisions).catch_up()  # a restarted one knows it as well
    assert directory.served() == [2]
    control.commit(bad(trained, 4))
    following.catch_up()
    assert (decisions[-1].round, decisions[-1].served, decisions[-1].published) == (4, 2, False)
    assert directory.served() == [2]
    control.commit(good(trained, 5))
    following.catch_up()
    assert (directory.served(), directory.versions()) == ([5], [1, 2, 3, 5])
    assert directory.roll_back(2) == (5, 2)


def test_old_versions_are_pruned_except_the_served_one(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained
) -> None:
    decisions: list[Decision] = []
    following = follower(runs, directory, trained, decisions, kept=2)
    for number in (1, 2, 3, 4):
        control.commit(good(trained, number))
        following.catch_up()
    assert directory.versions() == [3, 4]
    assert [found.removed for found in decisions] == [(), (), (1,), (2,)]
    with refused(InvalidInput, "keep", 1):
        follower(runs, directory, trained, decisions, kept=1)


def test_followed_versions_are_signed_with_a_key(
    control: Control,
    runs: CoordinatorClient,
    directory: ModelDirectory,
    trained: Trained,
    tmp_path: Path,
    verifies: Callable[[Path, Path], bool],
) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    from tests.release.test_signing import write_keys

    gate = FollowGate(data=NpzSource(trained.test_file))
    following = ReleaseFollower(runs, "r", directory, gate, on_decision=lambda found: None, key=write_keys(tmp_path))
    control.commit(good(trained, 1))
    following.catch_up()
    assert verifies(directory.path / "1", tmp_path / "key.pub")
    card = (directory.path / "1" / "MODEL_CARD.md").read_text()
    assert f"On {len(trained.test)} samples" in card  # the gate's


def test_with_a_key_rounds_are_compared_only_with_a_version_as_it_was_signed(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained, tmp_path: Path
) -> None:
    private = create_keys(tmp_path / "keys")
    following = ReleaseFollower(
        runs,
        "r",
        directory,
        FollowGate(data=NpzSource(trained.test_file)),
        on_decision=lambda found: None,
        key=private,
        verify_keys=[read_release_key(private.with_suffix(".pub"))],
    )
    for number in (1, 2):
        control.commit(good(trained, number))
        following.catch_up()
    assert directory.versions() == [1, 2]
    (directory.path / "2" / "model.onnx").write_bytes(directory.model(1))
    control.commit(good(trained, 3))
    with refused(UntrustedRelease, "file", "model.onnx"):
        following.catch_up()
    assert directory.versions() == [1, 2]


def test_a_gate_needs_samples(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained, tmp_path: Path
) -> None:
    np.savez(tmp_path / "none.npz", inputs=trained.test.inputs[:0], labels=trained.test.labels[:0])
    control.commit(good(trained, 1))
    with refused(InvalidInput, "samples"):
        ReleaseFollower(
            runs, "r", directory, FollowGate(data=NpzSource(tmp_path / "none.npz")), on_decision=lambda found: None
        ).catch_up()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("moonfed.target", class_target(tuple("abcdefghij")).to_text()),
        ("moonfed.input", json.dumps({"kind": "image", "shape": [4, 16, 1]})),
    ],
)
def test_a_served_model_with_other_classes_or_inputs_is_rejected(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained, key: str, value: str
) -> None:
    control.commit(good(trained, 1))
    following = follower(runs, directory, trained, [])
    following.catch_up()
    proto = onnx.ModelProto.FromString(directory.model(1))
    next(entry for entry in proto.metadata_props if entry.key == key).value = value
    (directory.path / "1" / "model.onnx").write_bytes(proto.SerializeToString())
    control.commit(good(trained, 2))
    with refused(InvalidInput, "inputs or classes"):
        following.catch_up()
    assert directory.versions() == [1]


def test_the_repository_of_another_model_is_not_changed(
    control: Control, runs: CoordinatorClient, directory: ModelDirectory, trained: Trained, tmp_path: Path
) -> None:
    control.commit(good(trained, 1))
    pets = ModelDirectory(tmp_path / "models", "pets")
    pets.publish(3, release(graph()))
    following = follower(runs, pets, trained, [])
    following.catch_up()  # round 1 is below version 3
    control.commit(good(trained, 2))
    control.commit(good(trained, 3))
    control.commit(good(trained, 4))
    with refused(InvalidInput, "input"):
        following.catch_up()
    assert pets.versions() == [3]


@pytest.mark.parametrize("listed", [False, True])
def test_a_model_deleted_before_it_is_fetched_is_skipped_unless_it_is_still_listed(
    control: Control,
    runs: CoordinatorClient,
    directory: ModelDirectory,
    trained: Trained,
    monkeypatch: pytest.MonkeyPatch,
    *,
    listed: bool,
) -> None:
    control.commit(good(trained, 1))
    control.commit(good(trained, 2))
    fetch = CoordinatorClient.fetch

    def deleted(self: CoordinatorClient, ref: BlobRef) -> Path:
        if ref.sha256 == control.run.model.sha256:
            if not listed:
                control.rounds[1].ClearField("model")
            raise NotFound("there is no such blob")
        return fetch(self, ref)

    monkeypatch.setattr(CoordinatorClient, "fetch", deleted)
    following = follower(runs, directory, trained, [])
    if listed:
        with pytest.raises(NotFound, match="there is no such blob"):
            following.catch_up()
    else:
        following.catch_up()
        assert directory.versions() == [1]


def test_following_survives_a_coordinator_restart_and_ends_with_the_run(
    control: Control, directory: ModelDirectory, trained: Trained
) -> None:
    decisions, looks = queue.SimpleQueue[Decision](), queue.SimpleQueue[None]()

    def follow() -> None:
        with connect(Endpoint(control.address, None)) as found:
            following = ReleaseFollower(
                found, "r", directory, FollowGate(data=NpzSource(trained.test_file)), on_decision=decisions.put
            )

            def look() -> bool:
                running = following.catch_up()
                looks.put(None)
                return running

            watch_run(found, "r", on_model=look, on_unavailable=lambda problem: None)

    thread = threading.Thread(target=follow)
    thread.start()
    looks.get(timeout=PATIENCE)  # at what there is when a watch begins; the next one is for what is told
    control.commit(good(trained, 1))
    assert decisions.get(timeout=PATIENCE).round == 1
    control.stop()
    control.commit(good(trained, 2))  # nobody watches
    control.serve()
    assert decisions.get(timeout=PATIENCE).round == 2
    control.end()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert directory.served() == [2]


def test_the_command_prints_each_decision(control: Control, trained: Trained, tmp_path: Path) -> None:
    control.commit(good(trained, 1))
    control.end()
    words = ["follow", "r", "--repository", tmp_path / "models", "--name", "digits", "--data", trained.test_file]
    code = "from moonfed.cli.program import main; main()"
    where = ["--insecure", "--coordinator", control.address]

    told = []

    def run(*others: str, ends_with: int = 0) -> str:
        command = [sys.executable, "-c", code, *map(str, words), *where, *others]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == ends_with, done.stderr
        told.append(done.stderr)
        return done.stdout

    (line,) = run("--json").splitlines()
    found = json.loads(line)
    assert (found["round"], found["published"], found["served"]) == (1, True, None)
    assert run() == ""  # all has been seen to
    has = f"moonfed-export: {tmp_path / 'models' / 'digits'} has version 1; only later rounds are considered\n"
    assert told == ["", has]
    control.commit(bad(trained, 2))
    assert run().startswith("round   2  accuracy 0.")
    assert run().endswith(": not good enough\n")
    public = create_keys(tmp_path / "keys").with_suffix(".pub")
    assert run("--verify-key", str(public), ends_with=12) == ""
    assert "moonfed-export: digits/1 is not signed" in told[-1]
    assert told[-1].endswith(" (docs: errors/release-rejected)\n")
    assert ModelDirectory(tmp_path / "models", "digits").versions() == [1]


def test_the_options_reach_the_gate_and_the_directory(control: Control, trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    from tests.release.test_signing import write_keys

    words = ["follow", "r", "--repository", tmp_path / "models", "--name", "digits", "--data", trained.test_file]
    where = ["--insecure", "--coordinator", control.address, "--json"]

    def follow(*options: object) -> dict[str, Any]:
        shown = CliRunner().invoke(app, [*map(str, [*words, *where, *options])], catch_exceptions=False).stdout
        found: dict[str, Any] = json.loads(shown)
        return found

    control.commit(good(trained, 1))
    control.end()
    assert follow()["published"]
    control.commit(bad(trained, 2))
    assert follow("--margin", 100)["published"]
    control.commit(good(trained, 3))
    assert follow("--keep", 2, "--sign", write_keys(tmp_path))["removed"] == [1]
    directory = ModelDirectory(tmp_path / "models", "digits")
    assert directory.versions() == [2, 3]
    assert [(directory.path / str(version) / "model.sig").exists() for version in (2, 3)] == [False, True]
