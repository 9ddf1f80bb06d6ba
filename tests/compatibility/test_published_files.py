"""Files that the first release published: a bundle, a signed release, and a repository of models."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tritonclient.grpc import InferenceServerClient, InferInput

from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE, WEIGHTS_FILE, plan_files
from moonfed.errors import UntrustedRelease
from moonfed.experiments.child_processes import run
from moonfed.models.release_manifest import verify_manifest
from moonfed.plan.interface import load_plan
from moonfed.plan.tensors import read_tensors
from moonfed.sandbox.plan_process import require_safe_plan
from moonfed.signing.bundle_signature import signed_by
from moonfed.signing.key_files import read_trust
from tests.compatibility.first_release_files import EXPECTED, FIRST_RELEASE
from tests.support.server_process import served

BUNDLE, REPOSITORY = FIRST_RELEASE / "bundle", FIRST_RELEASE / "repository"
DECADES = 50 * 365 * 86400.0  # seconds
TRUST = read_trust(FIRST_RELEASE / "trust.json").verify()
SAMPLES = np.load(FIRST_RELEASE / "samples.npz")["inputs"]
STEPS = 20


def test_the_bundle_is_signed_whole_and_safe() -> None:
    bundle = read_bundle(BUNDLE, signed_by(TRUST, clock=lambda: time.time() + DECADES))
    assert bundle.manifest.name == "bundle"
    assert plan_files(bundle.manifest) == {"torchscript/4": PLAN_FILE, "graph/1": GRAPH_PLAN_FILE}
    assert [spec.name for spec in bundle.manifest.tensors] == sorted(spec.name for spec in bundle.manifest.whole)
    require_safe_plan(bundle.plans)


@pytest.mark.parametrize("name", [PLAN_FILE, GRAPH_PLAN_FILE])
def test_both_forms_of_its_plan_train(name: str) -> None:
    manifest = read_bundle(BUNDLE).manifest
    plan = load_plan(BUNDLE / name, "cpu")
    inputs = torch.from_numpy(SAMPLES)
    labels = torch.tensor([int(row["class"]) for row in EXPECTED["served"]["predictions"]])
    none = torch.empty(0)
    model = read_tensors(BUNDLE / WEIGHTS_FILE, manifest.tensors)
    plan.begin_round(model, [], {}, manifest.training.hyperparameters, STEPS)
    losses = [float(plan.step(inputs, labels, none, none)) for _ in range(STEPS)]
    trained = plan.end_round(STEPS)["model"]
    assert losses[-1] < 0.5 * losses[0]
    assert [tensor.shape for tensor in trained] == [tensor.shape for tensor in model]


def test_the_release_is_verified() -> None:
    content, signature = (
        (FIRST_RELEASE / "release" / f"{name}.json").read_bytes() for name in ("manifest", "signature")
    )
    manifest, trust = verify_manifest(content, signature, now=time.time() + DECADES, trust=TRUST)
    assert trust == TRUST
    assert (manifest.name, manifest.version, manifest.run, manifest.round) == ("digits", 1, "personal", 2)
    assert [spec.name for spec in manifest.personal] == ["output_layer.bias", "output_layer.weight"]
    with pytest.raises(UntrustedRelease):
        verify_manifest(content.replace(b'"version":1', b'"version":2'), signature, now=time.time(), trust=TRUST)


def test_the_model_predicts_as_it_did() -> None:
    model, samples = REPOSITORY / "digits" / "2" / "model.onnx", FIRST_RELEASE / "samples.npz"
    found = json.loads(run("moonfed-export", "predict", str(samples), "--file", str(model), "--json"))
    assert _classes(found) == _classes(EXPECTED["served"])


def test_the_repository_is_served(tmp_path: Path) -> None:
    with served(REPOSITORY, tmp_path / "log") as server, InferenceServerClient(server.grpc) as client:
        given = InferInput("inputs", list(SAMPLES.shape), "UINT8").set_data_from_numpy(SAMPLES)
        answer = client.infer("digits", [given])
    assert answer.get_response().model_version == "2"
    assert [str(one) for one in answer.as_numpy("probabilities").argmax(axis=1)] == _classes(EXPECTED["served"])


def _classes(predictions: dict[str, list[dict[str, object]]]) -> list[object]:
    return [row["class"] for row in predictions["predictions"]]
