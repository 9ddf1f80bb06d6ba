"""`moonfed-client predict`: an installed release on new samples, by its plan in the sandbox and by ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import write_model
from moonfed.bundle.manifest import FILES, PLAN_FILE, InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.edge_client.predictor import Predictor
from moonfed.edge_client.state import model_files
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.state.trust import pin
from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import exchanged_tensors, tensor_specs
from moonfed.sandbox import policy
from tests.edge_client.conftest import CLASSES, FEATURES, PROGRAM, SANDBOX, Bundle, write_samples
from tests.support.compiled import cached_plan
from tests.support.device_coordinator import PATIENCE
from tests.support.device_releases import classifier, make_release
from tests.support.forked_process import PATCHES
from tests.support.model_repositories import directly
from tests.support.predictions import in_order
from tests.support.refusals import refused
from tests.support.signatures import trust

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

PICTURES = InputSpec(kind="image", shape=(8, 8, 3))


@pytest.fixture
def without_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.without_onnxruntime")


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


def install(state: Path, bundle: Bundle, spec: InputSpec, name: str = "digits", seed: int = 5) -> torch.nn.Module:
    """Install a release whose plan has this network, and whose ONNX file is another model; return the network."""
    kind = "mlp" if spec.kind == "features" else "cnn"
    network = build_network(kind, spec, class_target(CLASSES), mean=None, deviation=None, seed=seed)
    hyperparameters = dict(bundle.manifest.training.hyperparameters)
    method = METHODS["moon"](mu=1.0, tau=0.5, previous_models=1)
    plan = cached_plan(network, method, hyperparameters)
    specs = tensor_specs(network)
    state.mkdir(exist_ok=True)
    weights = state / "weights"
    write_model(weights, specs, (tensor.detach().numpy().ravel() for tensor in exchanged_tensors(network).values()))
    manifest: Manifest = replace(
        bundle.manifest,
        input=spec,
        tensors=specs,
        files={file: ref_of_bytes(plan if file == PLAN_FILE else b"") for file in FILES},
    )
    files = {
        "manifest.json": manifest.to_bytes(),
        "plan.pt": plan,
        "weights.safetensors": weights.read_bytes(),
    }
    release = make_release(seed, name=name, spec=spec, plan=files)
    ReleaseStore(state).install(release.files(state / "blobs", plan=True))
    return network.eval()


def expected(network: torch.nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        logits = network(torch.from_numpy(inputs))
    return torch.softmax(logits[-1] if isinstance(logits, tuple) else logits, dim=1).numpy()


@pytest.mark.usefixtures("without_onnx_runtime")
def test_samples_with_labels_are_classified_and_scored(tmp_path: Path, bundle: Bundle) -> None:
    network = install(tmp_path / "state", bundle, FEATURES)
    samples = write_samples(tmp_path / "samples.npz", count=150)
    with np.load(samples) as arrays:
        inputs, labels = arrays["inputs"], arrays["labels"]
    probabilities = expected(network, inputs)
    told = json.loads(predict(tmp_path / "state", samples, "--json")[0])
    assert (told["model"], told["version"]) == ("digits", 5)
    assert [entry["name"] for entry in told["predictions"][:2]] == ["samples.npz[0]", "samples.npz[1]"]
    assert np.allclose([in_order(entry) for entry in told["predictions"]], probabilities, atol=1e-5)
    assert {entry["label"] for entry in told["predictions"][0]["classes"]} == set(CLASSES)
    assert [entry["class"] for entry in told["predictions"]] == [CLASSES[best] for best in probabilities.argmax(1)]
    assert told["accuracy"] == pytest.approx((probabilities.argmax(1) == labels).mean())
    lines = predict(tmp_path / "state", samples)[0].splitlines()
    assert lines[0] == "version 5 of digits"
    assert lines[1].split() == ["samples.npz[0]", CLASSES[probabilities[0].argmax()], f"{probabilities[0].max():.3f}"]
    assert lines[-1] == f"accuracy {(probabilities.argmax(1) == labels).mean():.4f} on 150 samples"


def test_onnx_runtime_answers_where_it_is_installed(tmp_path: Path, bundle: Bundle) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    samples = write_samples(tmp_path / "samples.npz", count=150)
    with np.load(samples) as arrays:
        (probabilities,) = directly(classifier(), {"inputs": arrays["inputs"]})
        accuracy = np.mean(np.asarray(probabilities).argmax(axis=1) == arrays["labels"])
    told = json.loads(predict(tmp_path / "state", samples, "--json", "--model", "digits")[0])
    assert np.allclose([in_order(entry) for entry in told["predictions"]], probabilities, atol=1e-6)
    assert told["accuracy"] == pytest.approx(accuracy)
    assert accuracy > 0.8


@pytest.mark.usefixtures("fresh_programs")
def test_inputs_alone_are_enough(tmp_path: Path, bundle: Bundle) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    np.savez(tmp_path / "inputs.npz", inputs=np.zeros((3, 6), np.float32))
    told = json.loads(predict(tmp_path / "state", tmp_path / "inputs.npz", "--json")[0])
    assert len(told["predictions"]) == 3
    assert "accuracy" not in told


@pytest.mark.usefixtures("without_onnx_runtime")
def test_pictures_are_decoded_and_sized_as_for_training(tmp_path: Path, bundle: Bundle) -> None:
    network = install(tmp_path / "state", bundle, PICTURES)
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
    assert np.allclose([in_order(entry) for entry in told], probabilities, atol=1e-5)
    assert f"1 of 3 files in {folder} cannot be read" in err
    assert str(folder / "notes.txt") in err
    one = json.loads(predict(tmp_path / "state", folder / "more" / "grey.png", "--json")[0])["predictions"]
    assert in_order(one[0]) == pytest.approx(in_order(told[1]), abs=1e-6)


def test_each_name_answers_with_its_own_release(tmp_path: Path, bundle: Bundle) -> None:
    for seed, name in ((5, "first"), (6, "second")):
        install(tmp_path / "state", bundle, FEATURES, name, seed)
    samples = write_samples(tmp_path / "samples.npz", count=4)
    for version, name in ((5, "first"), (6, "second")):
        assert predict(tmp_path / "state", samples, "--model", name)[0].startswith(f"version {version} of {name}\n")
    err = predict(tmp_path / "state", samples, code=2)[1]
    assert err == "moonfed-client: model is missing; it must be one of first, second (docs: errors/invalid-input)\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.npz"], 3, "data is 'nowhere.npz'"),
        (["nowhere.png"], 3, "PATH is 'nowhere.png'"),
        (["samples.npz", "--model", "other"], 3, "model is 'other'"),
        (
            ["pixels.npz"],
            2,
            "pixels.npz has no field 'inputs', which is needed; found ['pixels'] (docs: errors/invalid-input)\n",
        ),
        (
            ["samples.npz", "more.png"],
            2,
            "must be the only PATH",
        ),
        ([], 2, "PATH is missing"),
        (["samples.txt"], 2, "data are image files"),
        (["samples.npz", "--device", "tpu"], 2, "device is 'tpu'"),
    ],
)
def test_an_input_that_cannot_be_classified_is_one_sentence(
    arguments: list[str], code: int, message: str, tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    install(tmp_path / "state", bundle, FEATURES)
    write_samples(tmp_path / "samples.npz", count=4)
    (tmp_path / "samples.txt").write_text("no picture")
    np.savez(tmp_path / "pixels.npz", pixels=np.zeros(3))
    err = predict(tmp_path / "state", *arguments, code=code)[1]
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize("kept", ["identity", "lock"])
def test_without_a_release_there_is_nothing_to_predict_with(kept: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / kept).touch()
    err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz"), code=3)[1]
    assert err == (
        "moonfed-client: this device has no release yet; "
        "an operator deploys one with: moonfed-coordinator release deploy NAME --version N (docs: errors/not-found)\n"
    )


def test_a_missing_and_an_invalid_state_directory_have_different_errors(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "samples.npz")
    gone = tmp_path / "gone"
    assert predict(gone, samples, code=3)[1] == (
        f"moonfed-client: state is {str(gone)!r}; there is no such directory (docs: errors/not-found)\n"
    )
    for wrong in (tmp_path, samples):
        assert predict(wrong, samples, code=2)[1] == (
            f"moonfed-client: state is {str(wrong)!r}, which is not a state directory of `moonfed-client` "
            "(docs: errors/invalid-input)\n"
        )


def test_a_damaged_version_causes_a_warning_and_the_previous_one_answers(tmp_path: Path, bundle: Bundle) -> None:
    state = tmp_path / "state"
    for seed in (5, 6):
        install(state, bundle, FEATURES, seed=seed)
    samples = write_samples(tmp_path / "samples.npz", count=4)
    alter(state / "repository" / "digits" / "6" / "model.onnx")
    out, err = predict(state, samples)
    assert out.startswith("version 5 of digits\n")
    assert err == (
        "model digits: using version 5, because version 6 cannot be loaded: "
        f"{state / 'repository/digits/6/model.onnx'} differs from what was installed; the disk may be damaged\n"
    )
    alter(state / "repository" / "digits" / "5" / "model.onnx")
    assert "5/model.onnx differs" in predict(state, samples, code=7)[1]


@pytest.mark.usefixtures("without_onnx_runtime")
@pytest.mark.parametrize("file", ["manifest.json", "plan.pt", "weights.safetensors"])
def test_one_altered_byte_of_an_installed_plan_is_found(file: str, tmp_path: Path, bundle: Bundle) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    alter(tmp_path / "state" / "releases" / "digits" / "5" / file)
    err = predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4), code=7)[1]
    assert f"{file} differs from what was installed" in err


def alter(file: Path) -> None:
    """Change a byte of a file, which is a hard link."""
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_an_installed_release_stays_usable_when_the_keys_change(tmp_path: Path, bundle: Bundle) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    pin(tmp_path / "state", trust(9), forget=True)
    assert predict(tmp_path / "state", write_samples(tmp_path / "samples.npz", count=4))[1] == ""


@pytest.mark.usefixtures("without_onnx_runtime")
def test_a_plan_runs_on_no_provider_of_onnx_runtime(tmp_path: Path, bundle: Bundle) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    samples = write_samples(tmp_path / "samples.npz", count=4)
    err = predict(tmp_path / "state", samples, "--device", "tensorrt", code=2)[1]
    assert (
        err == "moonfed-client: device is 'tensorrt'; it must be 'cpu' or 'cuda' without ONNX Runtime "
        "(docs: errors/invalid-input)\n"
    )


def test_plans_that_cannot_be_isolated_are_not_run(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "state", bundle, FEATURES)
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    monkeypatch.setattr(policy, "landlock_version", lambda: 1)
    monkeypatch.setattr(policy, "seccomp_available", lambda: True)
    monkeypatch.setattr(policy, "SYSTEM_FILES", (tmp_path,))
    with refused(InvalidInput, "state"):
        Predictor(tmp_path / "state", "digits")
    monkeypatch.setattr(policy, "landlock_version", lambda: 0)
    with refused(InvalidInput, "sandbox", "strict"):
        Predictor(tmp_path / "state", "digits")
