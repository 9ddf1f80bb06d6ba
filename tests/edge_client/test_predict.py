"""`moonfed-client predict`: a finished model on new samples."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from moonfed.blobs import ref_of_bytes, ref_of_file
from moonfed.edge_client import predict as module
from moonfed.edge_client.state.finished_models import store_finished
from moonfed.edge_client.state.trust import accept, pin
from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors, tensor_specs
from moonfed.manifest import FILES, PLAN_FILE, InputSpec, Manifest
from moonfed.sandbox import policy
from moonfed.signing.trust import TrustChain
from moonfed.tensors import write_model
from tests.edge_client.conftest import CLASSES, FEATURES, PROGRAM, SANDBOX, Bundle, write_samples
from tests.support.compiled import cached_plan
from tests.support.device_coordinator import PATIENCE
from tests.support.signatures import CHAIN, TRUST, issued, signature, trust

pytestmark = pytest.mark.usefixtures("forked_programs")

PICTURES = InputSpec(kind="image", shape=(8, 8, 3))


def predict(state: Path, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
    command = [
        str(PROGRAM),
        "predict",
        *map(str, arguments),
        "--state",
        str(state),
        "--threads",
        "1",
        "--sandbox",
        SANDBOX,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def finish(state: Path, bundle: Bundle, spec: InputSpec, run: str, seed: int) -> torch.nn.Module:
    """Store a finished model for a device; return the network."""
    kind = "mlp" if spec.kind == "features" else "cnn"
    network = build_network(kind, spec, len(CLASSES), mean=None, deviation=None, seed=seed)
    hyperparameters = dict(bundle.manifest.training.hyperparameters)
    method = METHODS["moon"](mu=1.0, tau=0.5, previous_models=1)
    plan = cached_plan(network, method, hyperparameters)
    specs = tensor_specs(network)
    sources = state / f"sources-{seed}"  # hard links are made of what never changes
    sources.mkdir(parents=True)
    model = sources / "model"
    write_model(model, specs, (tensor.detach().numpy().ravel() for tensor in exchanged_tensors(network).values()))
    manifest: Manifest = replace(
        bundle.manifest,
        input=spec,
        tensors=specs,
        files={name: ref_of_bytes(plan if name == PLAN_FILE else b"") for name in FILES},
    )
    (sources / "plan").write_bytes(plan)
    (sources / "manifest").write_bytes(manifest.to_bytes())
    (sources / "signature").write_bytes(signature(manifest.to_bytes()).to_bytes())
    pin(state, TRUST)
    store_finished(
        *(state / "finished", run, 7),
        manifest=ref_of_bytes(manifest.to_bytes()),
        model=ref_of_file(model),
        files={
            "signature.json": sources / "signature",
            "manifest.json": sources / "manifest",
            "plan.pt": sources / "plan",
            "model.safetensors": model,
        },
    )
    return network.eval()


def expected(network: torch.nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = network(torch.from_numpy(inputs))
    return torch.softmax(logits[-1] if isinstance(logits, tuple) else logits, dim=1).numpy()


def test_samples_with_labels_are_classified_and_scored(tmp_path: Path, bundle: Bundle) -> None:
    network = finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    samples = write_samples(tmp_path / "samples.npz", count=150)
    with np.load(samples) as arrays:
        inputs, labels = arrays["inputs"], arrays["labels"]
    probabilities = expected(network, inputs)
    told = json.loads(predict(tmp_path / "state", samples, "--json")[0])
    assert (told["run"], told["rounds"], told["classes"]) == ("first", 7, list(CLASSES))
    assert [entry["name"] for entry in told["predictions"][:2]] == ["samples.npz[0]", "samples.npz[1]"]
    assert np.allclose([entry["probabilities"] for entry in told["predictions"]], probabilities, atol=1e-5)
    assert [entry["class"] for entry in told["predictions"]] == [CLASSES[best] for best in probabilities.argmax(1)]
    assert told["accuracy"] == pytest.approx((probabilities.argmax(1) == labels).mean())
    lines = predict(tmp_path / "state", samples)[0].splitlines()
    assert lines[0] == "model of run first after 7 rounds"
    assert lines[1].split() == ["samples.npz[0]", CLASSES[probabilities[0].argmax()], f"{probabilities[0].max():.3f}"]
    assert lines[-1] == f"accuracy {(probabilities.argmax(1) == labels).mean():.4f} on 150 samples"


@pytest.mark.usefixtures("fresh_programs")
def test_inputs_alone_are_enough(tmp_path: Path, bundle: Bundle) -> None:
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    np.savez(tmp_path / "inputs.npz", inputs=np.zeros((3, 6), np.float32))
    told = json.loads(predict(tmp_path / "state", tmp_path / "inputs.npz", "--json")[0])
    assert len(told["predictions"]) == 3
    assert "accuracy" not in told


def test_pictures_are_decoded_and_sized_as_for_training(tmp_path: Path, bundle: Bundle) -> None:
    network = finish(tmp_path / "state", bundle, PICTURES, "pictures", seed=6)
    generator = np.random.default_rng(1)
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    exact = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(exact).save(folder / "exact.png")
    grey = Image.fromarray(generator.integers(0, 256, (20, 30), dtype=np.uint8))
    grey.save(folder / "more" / "grey.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"")
    resized = np.asarray(grey.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR))
    probabilities = expected(network, np.stack([exact, resized]))
    out, err = predict(tmp_path / "state", folder, "--json")
    told = json.loads(out)["predictions"]
    assert [entry["name"] for entry in told] == [str(folder / "exact.png"), str(folder / "more" / "grey.png")]
    assert np.allclose([entry["probabilities"] for entry in told], probabilities, atol=1e-5)
    assert f"{folder / 'notes.txt'} cannot be read as an image and is ignored" in err
    one = json.loads(predict(tmp_path / "state", folder / "more" / "grey.png", "--json")[0])["predictions"]
    assert one[0]["probabilities"] == pytest.approx(told[1]["probabilities"], abs=1e-6)


def test_the_newest_model_answers_unless_a_run_is_named(tmp_path: Path, bundle: Bundle) -> None:
    for seed, run in ((5, "first"), (6, "second")):
        finish(tmp_path / "state", bundle, FEATURES, run, seed)
    samples = write_samples(tmp_path / "samples.npz", count=4)
    newest, named = predict(tmp_path / "state", samples)[0], predict(tmp_path / "state", samples, "--run", "first")[0]
    assert newest.startswith("model of run second")
    assert named.startswith("model of run first")
    assert newest.splitlines()[1:] != named.splitlines()[1:]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.npz"], 3, "data is 'nowhere.npz'; there is no such file"),
        (["nowhere.png"], 3, "PATH is 'nowhere.png'; there is no such file or folder"),
        (["samples.npz", "--run", "other"], 3, "holds no finished model of 'other'; it holds first"),
        (["pixels.npz"], 2, "pixels.npz has no field 'inputs', which is needed; found ['pixels']\n"),
        (["samples.npz", "more.png"], 2, "PATH is 'samples.npz' and others; an .npz file must be the only PATH"),
        ([], 2, "PATH is missing; give images, folders of images, or an .npz file with inputs"),
        (["samples.txt"], 2, "data are image files; the bundle takes features, so give it an .npz file"),
        (["samples.npz", "--device", "tpu"], 2, "device is 'tpu'; it must be 'cpu' or 'cuda'"),
    ],
)
def test_an_input_that_cannot_be_classified_is_one_sentence(
    arguments: list[str], code: int, message: str, tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    write_samples(tmp_path / "samples.npz", count=4)
    (tmp_path / "samples.txt").write_text("no picture")
    np.savez(tmp_path / "pixels.npz", pixels=np.zeros(3))
    err = predict(tmp_path / "state", *arguments, code=code)[1]
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize("kept", ["identity", "lock"])
def test_without_a_finished_model_there_is_nothing_to_predict_with(kept: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / kept).touch()
    err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz"), code=3)[1]
    assert err == (
        f"moonfed-client: {tmp_path / 'state'} holds no finished model yet; "
        "a device fetches it when one of its runs has finished\n"
    )


def test_a_missing_and_an_invalid_state_directory_have_different_errors(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "samples.npz")
    gone = tmp_path / "gone"
    assert predict(gone, samples, code=3)[1] == (
        f"moonfed-client: state is {str(gone)!r}; there is no such directory\n"
    )
    for wrong in (tmp_path, samples):
        assert predict(wrong, samples, code=2)[1] == (
            f"moonfed-client: state is {str(wrong)!r}, which is not a state directory of `moonfed-client`\n"
        )


def test_a_damaged_newest_model_causes_a_warning_and_an_older_one_is_used(tmp_path: Path, bundle: Bundle) -> None:
    for seed, run in ((5, "first"), (6, "second")):
        finish(tmp_path / "state", bundle, FEATURES, run, seed)
    samples = write_samples(tmp_path / "samples.npz", count=4)
    facts = tmp_path / "state" / "finished" / "second" / "finished.json"
    facts.write_bytes(facts.read_bytes()[:20])
    out, err = predict(tmp_path / "state", samples)
    assert out.startswith("model of run first")
    assert err == f"{facts} is damaged; using the model of run first\n"
    assert predict(tmp_path / "state", samples, "--run", "first")[1] == ""
    err = predict(tmp_path / "state", samples, "--run", "second", code=7)[1]
    assert err == f"moonfed-client: {facts} differs from what was fetched; the disk may be damaged\n"


def test_a_damaged_older_model_causes_no_warning(tmp_path: Path, bundle: Bundle) -> None:
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    (tmp_path / "state" / "finished" / "first" / "finished.json").write_text("{")
    finish(tmp_path / "state", bundle, FEATURES, "second", seed=6)
    out, err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4))
    assert out.startswith("model of run second")
    assert err == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (None, "the bundle is not signed"),
        ({"keys": [9]}, "which is not trusted"),
        ({"keys": [9], "chain": TrustChain((issued(trust(9), 9),))}, "differs from version 1 of the trust file"),
        (
            {"keys": [9], "chain": TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))},
            "not signed by 1 of its predecessor's keys",
        ),
        ({"expires": 1}, "signature expired on 1970-01-01 00:00 UTC"),
        ({"manifest": b"another manifest"}, "is for another manifest"),
        ({"name": "other"}, "is named 'tested', but signed as 'other'"),
    ],
)
def test_a_stored_model_whose_bundle_is_not_trusted_is_not_used(
    fields: dict[str, Any] | None, reason: str, tmp_path: Path, bundle: Bundle
) -> None:
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    stored = tmp_path / "state" / "finished" / "first"
    (stored / "signature.json").unlink()
    if fields is not None:
        manifest = fields.pop("manifest", (stored / "manifest.json").read_bytes())
        (stored / "signature.json").write_bytes(signature(manifest, **fields).to_bytes())
    err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4), code=12)[1]
    assert reason in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("file", ["manifest.json", "plan.pt"])
def test_one_altered_byte_of_a_stored_model_is_found(file: str, tmp_path: Path, bundle: Bundle) -> None:
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    stored = tmp_path / "state" / "finished" / "first" / file
    content = stored.read_bytes()
    stored.unlink()  # it is a hard link
    stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4), code=7)[1]
    assert f"{file} differs from what was fetched" in err


def test_a_model_stays_usable_when_a_newer_bundle_was_accepted(tmp_path: Path, bundle: Bundle) -> None:
    finish(tmp_path / "state", bundle, FEATURES, "first", seed=5)
    newer = signature(b"a newer manifest", version=9)
    accept(tmp_path / "state", newer.to_bytes(), newer.statement.manifest, 0.0)
    assert predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4))[1] == ""


def test_plans_that_cannot_be_isolated_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "landlock_version", lambda: 1)
    monkeypatch.setattr(policy, "seccomp_available", lambda: True)
    monkeypatch.setattr(policy, "SYSTEM_FILES", (tmp_path,))
    (tmp_path / "state" / "finished").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"state is '.*/state'; it must be outside .*, which plans may read"):
        module.predict([tmp_path], tmp_path / "state", module.ComputeSettings())
    monkeypatch.setattr(policy, "landlock_version", lambda: 0)
    with pytest.raises(InvalidInput, match="sandbox is 'strict'; it must be 'weak' or 'off' on this machine"):
        module.ComputeSettings()
