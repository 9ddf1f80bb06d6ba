"""Releases of a real model, made on the engineer's machine and stored by a real coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.blobs.tensors import write_model
from moonfed.client import Release, Round, Run
from moonfed.data.data_set import DataSet
from moonfed.data.npz import NpzSource
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, UntrustedRelease, WrongState
from moonfed.export.coordinator_client import CoordinatorClient, connect
from moonfed.export.scoring import Predictor
from moonfed.models.release_manifest import CONFIG_FILE, LABELS_FILE, VARIANT_FILES, ReleaseManifest, verify_manifest
from moonfed.release import create
from moonfed.release.create import CreatedRelease, ReleaseOptions, best_round, create_release
from moonfed.release.model_facts import EvaluationResults, evaluate
from moonfed.release.repository import ModelDirectory
from moonfed.release.triton_config import from_text
from moonfed.release.variants import VariantOptions
from moonfed.signing.key_files import Signer, open_signer
from moonfed.signing.release_signature import release_key
from moonfed.signing.trust import TrustChain
from moonfed.transport.client import fetch_blob
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import control_pb2, control_pb2_grpc
from tests.support.coordinator import ask, coordinator_in_process, settings, start_run
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, TRUST, issued, key, signed, trust
from tests.support.trained_model import CLASSES, Trained

SIGNER = Signer((key(1),), CHAIN)
PRIVATE: dict[str, Any] = {
    "trusting": False,
    "privacy": {"epsilon": 2, "delta": 1e-3},
    "cohort": 9,
    "population": 90,
    "clip_norm": 0.5,
}


@pytest.fixture(scope="module")
def address(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A coordinator with a run `r` that has ended, which started from the trained model, and one that is active."""
    directory = tmp_path_factory.mktemp("releases")
    with ExitStack() as stack:
        ports = stack.enter_context(coordinator_in_process(directory / "state", insecure=True))
        found = f"127.0.0.1:{ports.fleet}"
        control = control_pb2_grpc.ControlStub(stack.enter_context(grpc.insecure_channel(found)))
        weights = directory / "weights"
        write_model(weights, trained.bundle.manifest.tensors, [trained.model])
        for run in ("r", "active"):
            start_run(control, run, signed(trained.bundle), settings(minimum_devices=9), weights)
        start_run(control, "private", signed(trained.bundle), settings(minimum_devices=9, **PRIVATE), weights)
        for run in ("r", "private"):
            ask(control.StopRun, control_pb2.StopRunRequest(run=run))
        yield found


@pytest.fixture
def client(address: str) -> Iterator[CoordinatorClient]:
    with connect(Endpoint(address, None)) as runs:
        yield runs


def options(trained: Trained, name: str, **fields: object) -> ReleaseOptions:
    return ReleaseOptions(name=name, data=NpzSource(trained.test_file), **fields)  # type: ignore[arg-type]


def made(client: CoordinatorClient, given: ReleaseOptions, signer: Signer = SIGNER, run: str = "r") -> CreatedRelease:
    return create_release(client, run, given, signer, lambda _step: None)


def downloaded(client: CoordinatorClient, release: Release, repository: Path) -> ReleaseManifest:
    """Fetch a release as a device does: verify it, and write a model repository with the float32 variant."""
    content = client.fetch(release.manifest).read_bytes()
    signature = client.fetch(release.signature).read_bytes()
    manifest, _ = verify_manifest(content, signature, now=1_800_000_000.0, trust=TRUST)
    version = repository / manifest.name / str(manifest.version)
    version.mkdir(parents=True)
    for name, ref in manifest.files("float32").items():
        (version / name).write_bytes(client.fetch(ref).read_bytes())
        if name in (CONFIG_FILE, LABELS_FILE):
            policy = f"version_policy {{ specific {{ versions: {manifest.version} }} }}\n"
            text = (version / name).read_text() + (policy if name == CONFIG_FILE else "")
            (version.parent / name).write_text(text)
    return manifest


def test_a_release_is_complete_signed_and_predicts_like_the_model(
    client: CoordinatorClient, trained: Trained, tmp_path: Path
) -> None:
    found = made(client, options(trained, "digits")).release
    assert (found.name, found.version, found.run, found.round) == ("digits", 1, "r", 0)
    manifest = downloaded(client, found, tmp_path)
    assert set(manifest.files("float32")) == {*VARIANT_FILES, LABELS_FILE, "evaluation.json"}
    assert {name: set(files) for name, files in manifest.pictures.items()} == {"float32": {"confusion.svg"}}
    assert client.fetch(manifest.pictures["float32"]["confusion.svg"]).read_bytes().startswith(b"<svg ")
    assert manifest.classes == CLASSES
    files = ModelDirectory(tmp_path, "digits").require_verified(1, [release_key(key(1))])
    predicted = Predictor(files["model.onnx"]).predict(trained.test.inputs)
    accuracy = float(np.mean(predicted.argmax(axis=1) == trained.test.labels))
    assert manifest.evaluation
    assert manifest.evaluation.score == found.score == pytest.approx(accuracy)
    assert manifest.evaluation.samples == found.samples == len(trained.test)
    evaluation = json.loads(files["evaluation.json"])
    assert [each["name"] for each in evaluation["classes"]] == list(CLASSES)
    assert sum(each["support"] for each in evaluation["classes"]) == len(trained.test)
    config = from_text(files[CONFIG_FILE].decode(), "the configuration")
    assert not config.HasField("version_policy")
    assert ModelDirectory(tmp_path, "digits").served() == [1]


def test_a_release_has_the_plan_and_weights_that_were_checked(
    client: CoordinatorClient, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator answers with other files once they were."""
    get, asked = client.run, list[str]()

    def changing(_client: CoordinatorClient, run: str) -> Run:
        found = get(run)
        asked.append(run)
        if len(asked) > 1:
            assert found.signature
            return replace(found, manifest=found.signature, initial_model=found.signature)
        return found

    monkeypatch.setattr(client.__class__, "run", changing)
    release = made(client, options(trained, "exchanged")).release
    assert len(asked) > 1
    plan = ReleaseManifest.from_bytes(client.fetch(release.manifest).read_bytes()).plan
    assert plan["manifest.json"] == get("r").manifest
    assert plan["weights.safetensors"] == get("r").initial_model


def test_a_release_of_a_private_run_tells_devices_to_report_no_scores_and_has_a_section(
    client: CoordinatorClient, trained: Trained, tmp_path: Path
) -> None:
    release = made(client, options(trained, "hidden"), run="private").release
    assert downloaded(client, release, tmp_path / "private").private
    card = (tmp_path / "private" / "hidden" / "1" / "MODEL_CARD.md").read_text()
    assert "| epsilon | 0, of a budget of 2 |" in card
    assert not downloaded(client, made(client, options(trained, "shown")).release, tmp_path / "r").private


def test_versions_are_numbered_and_a_taken_number_is_tried_again(
    client: CoordinatorClient, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [made(client, options(trained, "numbered")).release.version for _ in range(2)] == [1, 2]
    listed, calls = client.releases, list[int]()

    def outdated(name: str) -> list[Release]:
        calls.append(len(calls))
        return listed(name)[:-1] if len(calls) == 1 else listed(name)

    monkeypatch.setattr(client.__class__, "releases", lambda _self, name: outdated(name))
    later = options(trained, "numbered", clock=lambda: 2_000_000_000.0)  # else it could be the same release again
    assert made(client, later).release.version == 3
    assert len(calls) == 2
    monkeypatch.setattr(create, "ATTEMPTS", 1)
    calls.clear()
    with refused(AlreadyExists, "version", 3):
        made(client, replace(later, clock=lambda: 2_000_000_001.0))


def test_data_are_read_once_and_models_evaluated_once_even_if_the_number_is_taken(
    client: CoordinatorClient, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(client, options(trained, "once"))
    listed = client.releases
    outdated: list[list[control_pb2.Release]] = [[]]
    reads, evaluated = list[str](), list[int]()

    class Counted(NpzSource):
        def read(self, *arguments: Any, **options: Any) -> DataSet:
            reads.append("read")
            return super().read(*arguments, **options)

    def counted(graph: bytes, metadata: Mapping[str, str], samples: DataSet) -> EvaluationResults:
        evaluated.append(len(graph))
        return evaluate(graph, metadata, samples)

    monkeypatch.setattr(client.__class__, "releases", lambda _self, name: outdated.pop() if outdated else listed(name))
    monkeypatch.setattr("moonfed.release.create.evaluate", counted)
    wanted = VariantOptions(names=("float16",), max_drop=100.0, keep="smaller")
    later = options(trained, "once", variants=wanted, clock=lambda: 2_000_000_000.0)
    created = made(client, replace(later, data=Counted(trained.test_file)))
    assert (created.release.version, len(created.release.variants), outdated) == (2, 2, [])
    assert (len(reads), len(evaluated)) == (1, 2)


def test_variants_that_pass_the_gate_are_added(client: CoordinatorClient, trained: Trained) -> None:
    wanted = VariantOptions(names=("float16",), max_drop=100.0, keep="smaller")
    created = made(client, options(trained, "variants", variants=wanted))
    assert list(created.release.variants) == ["float16", "float32"]
    assert not created.dropped
    sizes = {name: model.size for name, model in created.release.variants.items()}
    assert sizes["float16"] < sizes["float32"]


def test_a_release_without_enough_signatures_is_not_made(client: CoordinatorClient, trained: Trained) -> None:
    both = TrustChain((issued(trust(1, 2, threshold=2), 1, 2),))
    with refused(UntrustedRelease, "signing keys", 1):
        made(client, options(trained, "few"), Signer((key(1),), both))
    assert made(client, options(trained, "few"), Signer((key(1), key(2)), both)).release.version == 1


def test_the_best_round_is_the_first_of_the_most_accurate_whose_model_is_kept() -> None:
    model = BlobRef("ab" * 32, 1)
    accuracies = {1: 0.5, 2: 0.9, 3: 0.8, 4: 0.8, 5: None}
    rounds = [
        Round(
            run="r",
            round=number,
            attempt=1,
            status="committed",
            model=None if number == 2 else model,
            metrics={} if accuracy is None else {"accuracy": accuracy},
        )
        for number, accuracy in accuracies.items()
    ]
    assert best_round("r", rounds) == 3
    with refused(NotFound, "run", "r"):
        best_round("r", rounds[-1:])
    with refused(InvalidInput, "round", 3):
        ReleaseOptions(name="digits", data=NpzSource(Path("nowhere")), round=3, best=True)


def test_mistakes_are_named(client: CoordinatorClient, trained: Trained, tmp_path: Path) -> None:
    unlabelled = tmp_path / "unlabelled.npz"
    np.savez(unlabelled, inputs=trained.test.inputs[:5])
    with refused(InvalidInput, "labels"):
        made(client, replace(options(trained, "wrong"), data=NpzSource(unlabelled)))
    with refused(NotFound, "run", "r"):
        made(client, options(trained, "wrong", round=7))
    with refused(InvalidInput, "name", "../x"):
        options(trained, "../x")
    with refused(InvalidInput, "expires-days", 99999.0):
        options(trained, "wrong", expires_days=99999.0)
    with pytest.raises(NotFound, match="there is no release 'wrong'"):
        client.releases("wrong")


def test_an_active_run_is_rejected_before_anything_is_computed(client: CoordinatorClient, trained: Trained) -> None:
    steps: list[str] = []
    with refused(WrongState, "run", "active"):
        create_release(client, "active", options(trained, "early"), SIGNER, steps.append)
    assert not steps


def test_the_users_own_keys_are_the_default(client: CoordinatorClient, trained: Trained) -> None:
    created = made(client, options(trained, "own"), open_signer([], print))
    content = client.fetch(created.release.manifest).read_bytes()
    signature = client.fetch(created.release.signature).read_bytes()
    assert verify_manifest(content, signature, now=1_800_000_000.0)[0].name == "own"


def test_fetch_is_by_digest(client: CoordinatorClient, address: str, trained: Trained, tmp_path: Path) -> None:
    """A device fetches the plan files by the digests in the manifest."""
    created = made(client, options(trained, "plan"))
    manifest = ReleaseManifest.from_bytes(client.fetch(created.release.manifest).read_bytes())
    with grpc.insecure_channel(address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        for ref in manifest.plan.values():
            assert fetch_blob(stub.Fetch, ref, BlobDirectory(tmp_path)).stat().st_size == ref.size
