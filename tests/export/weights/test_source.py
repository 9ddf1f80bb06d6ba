"""Pretrained weights from files, directories, torchvision and runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from moonfed.blobs.tensors import split
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.errors import InvalidInput, NotFound, Unavailable
from moonfed.export import build_bundle
from moonfed.export.binding import bind
from moonfed.export.coordinator_client import connect
from moonfed.export.torchvision_import import import_torchvision
from moonfed.export.weights.pretrained import Normalisation, PretrainedWeights, Resizing
from moonfed.export.weights.source import WeightsOptions, of_run, read_file, read_weights
from moonfed.transport.operator_connection import Endpoint
from tests.support.control_service import Control
from tests.support.refusals import refused

pytestmark = pytest.mark.slow
STATE = {"stem.weight": torch.arange(6.0).reshape(2, 3), "stem.bias": torch.tensor([0.5, -0.5])}


class Touch:
    """An object in a hostile file: unpickling it would create a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._path,)


def read(source: str | Path, model: str = "mlp") -> PretrainedWeights:
    return read_weights(WeightsOptions(source=str(source), renames={}), model)


def same(found: PretrainedWeights) -> bool:
    return found.tensors.keys() == STATE.keys() and all(
        torch.equal(found.tensors[name], tensor) for name, tensor in STATE.items()
    )


def test_a_safetensors_file_is_read(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "w.safetensors")
    found = read(tmp_path / "w.safetensors")
    assert same(found)
    assert (found.source, found.licence, found.normalisation) == ("w.safetensors", "", None)


@pytest.mark.parametrize("wrapped", ["", "state_dict", "model"])
def test_a_state_dict_is_read_in_the_sandbox_also_within_a_checkpoint(tmp_path: Path, wrapped: str) -> None:
    content = {"epoch": 3, wrapped: STATE} if wrapped else STATE
    torch.save(content, tmp_path / "w.pth")
    assert same(read(tmp_path / "w.pth"))


def test_a_file_with_python_objects_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")
    (tmp_path / "hostile.pt").write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    torch.save(Touch(tmp_path / "touched"), tmp_path / "hostile.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("weights")
    for name in ("module.pth", "hostile.pt", "hostile.pth", "list.pth", "text.pth"):
        with refused(InvalidInput, "weights", name):
            read_file(tmp_path / name)
    assert not (tmp_path / "touched").exists()


def test_damaged_missing_and_unknown_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"\xff" * 100)
    with refused(InvalidInput, "weights", "w.safetensors"):
        read(tmp_path / "w.safetensors")
    with refused(NotFound, "weights", tmp_path / "none.pth"):
        read(tmp_path / "none.pth")
    for source in ("w.h5", "run:", "run:x@last", "hf:" + str(tmp_path / "none"), "torchvision:default", "timm:default"):
        with refused(InvalidInput, "weights", source if ":" in source else "w.h5"):
            read(source)


def test_a_directory_of_hugging_face_states_licence_and_normalisation(tmp_path: Path) -> None:
    for number, name in enumerate(STATE, start=1):
        save_file({name: STATE[name]}, tmp_path / f"model-0000{number}-of-00002.safetensors")
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A model\nlicense: none\n")
    config = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25], "resample": 3, "size": 384}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    found = read(f"hf:{tmp_path}")
    assert same(found)
    assert (found.source, found.licence) == (tmp_path.name, "mit")
    assert found.normalisation == Normalisation(mean=(0.5,) * 3, deviation=(0.25,) * 3)
    assert found.resizing == Resizing(interpolation="bicubic", sides=(384, 384))


def test_torchvisions_weights_are_taken_from_torchs_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = import_torchvision().models
    weights = models.get_model_weights("squeezenet1_1")["IMAGENET1K_V1"]
    state = models.squeezenet1_1(weights=None).state_dict()
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.save(state, tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2])
    found = read("torchvision:default", "torchvision:squeezenet1_1")
    assert (found.source, found.url) == ("torchvision squeezenet1_1 IMAGENET1K_V1", weights.url)
    assert found.normalisation == Normalisation(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))
    assert found.resizing == Resizing(interpolation="bilinear", sides=(224, 224), cropped=True)
    assert found.tensors.keys() == state.keys()
    with refused(InvalidInput, "weights", "torchvision:V7"):
        read("torchvision:V7", "torchvision:squeezenet1_1")


def test_weights_that_cannot_be_downloaded_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"squeezenet1_1-\w+\.pth"):
        read("torchvision:default", "torchvision:squeezenet1_1")


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_timms_weights_are_taken_from_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match=r"resnet18\.a1_in1k"):
        read("timm:default", "timm:resnet18")
    folder, commit = tmp_path / "models--timm--resnet18.a1_in1k", "0" * 40
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    save_file(STATE, folder / "snapshots" / commit / "model.safetensors")
    for source in ("timm:default", "timm:a1_in1k"):
        found = read(source, "timm:resnet18")
        assert same(found)
        assert (found.source, found.licence) == ("timm resnet18.a1_in1k", "apache-2.0")
        assert found.url.endswith("/timm/resnet18.a1_in1k/resolve/main/model.safetensors")
        assert found.normalisation == Normalisation(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))
    for source, model in (("timm:a9", "timm:resnet18"), ("timm:default", "timm:mixer_s32_224")):
        with refused(InvalidInput, "weights", source):
            read(source, model)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return build_bundle(model="mlp", shape=3, classes=2, mean=[1.0, 2.0, 3.0], std=[2.0], seed=5)


@pytest.fixture
def control(bundle: Bundle, tmp_path: Path) -> Iterator[Control]:
    made = Control(tmp_path, bundle)  # type: ignore[abstract]  # it answers only what export asks
    made.serve()
    yield made
    made.stop()


def expected(bundle: Bundle, vector: np.ndarray) -> dict[str, np.ndarray]:
    return dict(split(vector.astype(np.float32), bundle.manifest.tensors))


def test_our_own_graph_has_the_models_tensors_and_normalisation(bundle: Bundle, tmp_path: Path) -> None:
    size = sum(int(np.prod(spec.shape)) for spec in bundle.manifest.tensors)
    vector = np.linspace(-1, 1, size, dtype=np.float32)
    (tmp_path / "m.onnx").write_bytes(bind(bundle.contents["model.onnx"], vector, bundle.manifest))
    found = read(tmp_path / "m.onnx")
    assert found.normalisation == Normalisation(mean=(1.0, 2.0, 3.0), deviation=(2.0, 2.0, 2.0))
    for name, values in expected(bundle, vector).items():
        np.testing.assert_array_equal(found.tensors[name].numpy(), values)


def test_a_runs_newest_model_starts_another(bundle: Bundle, control: Control) -> None:
    size = sum(int(np.prod(spec.shape)) for spec in bundle.manifest.tensors)
    vector = np.linspace(-1, 1, size, dtype=np.float32)
    control.commit(vector)
    with connect(Endpoint(control.address, None)) as runs:
        found, initial = of_run(runs, "r", None), of_run(runs, "r", 0)
    assert (found.source, initial.source) == ("run r, round 1", "run r, round 0")
    assert found.normalisation == Normalisation(mean=(1.0, 2.0, 3.0), deviation=(2.0, 2.0, 2.0))
    for name, values in expected(bundle, vector).items():
        np.testing.assert_array_equal(found.tensors[name].numpy(), values)


def test_a_bundle_starts_from_the_weights_and_says_so(tmp_path: Path, bundle: Bundle) -> None:
    other = build_bundle(model="mlp", shape=3, classes=4, seed=6)
    values = expected(other, _initial(other))
    save_file({name: torch.from_numpy(each.copy()) for name, each in values.items()}, tmp_path / "w.safetensors")
    found = build_bundle(
        model="mlp", shape=3, classes=2, weights=tmp_path / "w.safetensors", weights_licence="MIT", seed=7
    )
    start = found.manifest.pretrained
    assert start is not None
    assert (start.source, start.licence) == ("w.safetensors", "MIT")
    for name, each in expected(found, _initial(found)).items():
        assert np.array_equal(each, values[name]) == (not name.startswith("output_layer."))
    assert start.tensors == sum(not name.startswith("output_layer.") for name in values)


def _initial(bundle: Bundle) -> np.ndarray:
    from safetensors.numpy import load

    tensors = load(bundle.contents[WEIGHTS_FILE])
    return np.concatenate([tensors[spec.name].reshape(-1) for spec in bundle.manifest.tensors])
