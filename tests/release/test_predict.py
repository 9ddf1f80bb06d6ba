"""`moonfed-export predict`: images of any size, with a server and with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from moonfed.bundle.manifest import InputSpec, output_shape
from moonfed.bundle.target import NO_TARGET, TargetSpec
from moonfed.errors import InvalidInput, UntrustedRelease
from moonfed.export.binding import with_metadata
from moonfed.release.model_file import CheckedModel
from moonfed.release.predict import FileModel, ServedModel, predict_paths
from moonfed.release.repository import ModelDirectory, ModelRelease
from moonfed.release.signing import ReleaseSigner
from moonfed.release.triton_config import read_interface
from moonfed.signing.key_files import create_keys
from tests.release.test_publish import program
from tests.support.model_repositories import graph as graph_of
from tests.support.model_repositories import linear, summing, write_model
from tests.support.pet_models import graph, release
from tests.support.refusals import refused
from tests.support.server_certificates import write_certificate
from tests.support.server_process import served
from tests.support.trained_model import CLASSES, Trained

pytestmark = pytest.mark.slow


@pytest.fixture
def pictures(trained: Trained, tmp_path: Path) -> list[Path]:
    """Three digits: unchanged, in colour, and three times as large."""
    images = [Image.fromarray(pixels[..., 0]) for pixels in trained.test.inputs[:3]]
    images[1] = images[1].convert("RGB")
    images[2] = images[2].resize((24, 24), Image.Resampling.NEAREST)
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    return paths


def expected(checked: CheckedModel, pixels: np.ndarray, top: int) -> list[tuple[int, str, float]]:
    session = onnxruntime.InferenceSession(checked.graph, providers=["CPUExecutionProvider"])
    (row,) = np.asarray(session.run(["probabilities"], {"inputs": pixels[None]})[0])
    return [(int(i), CLASSES[i], float(row[i])) for i in np.argsort(-row)[:top]]


def answers(prediction: dict[str, Any]) -> list[tuple[int, str, float]]:
    return [(entry["index"], entry["label"], entry["confidence"]) for entry in prediction["classes"]]


def test_a_server_and_a_file_agree_with_onnx_runtime(
    checked: CheckedModel, trained: Trained, pictures: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    assert (
        program("repository", tmp_path / "digits.onnx", "--name", "digits", "--output", tmp_path / "models").returncode
        == 0
    )
    small = np.asarray(Image.open(pictures[2]).resize((8, 8), Image.Resampling.BILINEAR))[..., None]
    samples = [trained.test.inputs[0], trained.test.inputs[1], small]
    with served(tmp_path / "models", tmp_path / "log") as server:
        asked = ("--server", server.grpc, "--model", "digits")
        by_server = program("predict", *pictures, *asked, "--top", 4, "--json")
        shown = program("predict", pictures[0], *asked)
        absent = program("predict", pictures[0], "--server", server.grpc, "--model", "others")
    by_file = program("predict", *pictures, "--file", tmp_path / "digits.onnx", "--top", 4, "--json")
    for done in (by_server, by_file):
        assert done.returncode == 0, done.stderr
        predictions = json.loads(done.stdout)["predictions"]
        assert [prediction["name"] for prediction in predictions] == [str(path) for path in pictures]
        for prediction, pixels in zip(predictions, samples, strict=True):
            found, known = answers(prediction), expected(checked, pixels, 4)
            assert (prediction["class"], prediction["confidence"]) == (found[0][1], found[0][2])
            assert [entry[:2] for entry in found] == [entry[:2] for entry in known]
            assert [entry[2] for entry in found] == pytest.approx([entry[2] for entry in known], abs=1e-6)
    (_, best, confidence), *_ = expected(checked, samples[0], 1)
    assert shown.stdout.startswith(f"{pictures[0]}  {best} {confidence:.4f}, ")
    assert len(shown.stdout.split(", ")) == 3
    assert absent.returncode == 3
    assert f"the server at {server.grpc} answered: " in absent.stderr


V = ("", "a", "b", "c")
PRICES = TargetSpec(
    kind="values", names=("price", "area"), shape=(2,), units=("EUR", ""), mean=(1, 2), deviation=(3, 4)
)
# By name of the model: a sample, a target, the nodes of a graph, the sample's file or array, and what is told of it.
OTHERS: dict[str, tuple[InputSpec, TargetSpec, list[Any], str]] = {
    "values": (
        InputSpec(kind="features", shape=(2,)),
        PRICES,
        [helper.make_node("Identity", ["inputs"], ["values"])],
        "price 2 EUR, area 3",
    ),
    "labels": (
        InputSpec(kind="features", shape=(2,)),
        TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,)),
        [helper.make_node("Softmax", ["inputs"], ["probabilities"], axis=1)],
        "dog 0.731",
    ),
    "scores": (
        InputSpec(kind="series", shape=(3, 2)),
        NO_TARGET,
        [helper.make_node("ReduceMean", ["inputs", "axes"], ["scores"], keepdims=0)],
        "anomaly  score 4.5 (threshold 4)",
    ),
    "tokens": (
        InputSpec(kind="tokens", shape=(3,), vocabulary=V),
        TargetSpec(kind="next", shape=(0,)),
        [helper.make_node("Gather", ["table", "inputs"], ["probabilities"])],
        "'c' 0.700, 'b' 0.200, 'a' 0.100, '' 0.000",
    ),
    "masks": (
        InputSpec(kind="image", shape=(2, 4, 3)),
        TargetSpec(kind="mask", names=("soil", "crop", "weed"), shape=(2, 4)),
        [
            helper.make_node("Cast", ["inputs"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Transpose", ["numbers"], ["logits"], perm=[0, 3, 1, 2]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
        ],
        "soil 75.0 %, weed 25.0 %",
    ),
}
INITIALISERS = {
    "scores": {"axes": np.array([1, 2])},
    "tokens": {"table": np.array([[1, 0, 0, 0], [0, 0.1, 0.2, 0.7], [0, 0, 0, 1], [1, 0, 0, 0]], np.float32)},
}
TYPES = {"image": TensorProto.UINT8, "tokens": TensorProto.INT64}


def other_model(name: str) -> bytes:
    spec, target, nodes, _ = OTHERS[name]
    first = helper.make_tensor_value_info("inputs", TYPES.get(spec.kind, TensorProto.FLOAT), ["N", *spec.shape])
    last = helper.make_tensor_value_info(target.output, TensorProto.FLOAT, ["N", *output_shape(spec, target)])
    values = [numpy_helper.from_array(value, key) for key, value in INITIALISERS.get(name, {}).items()]
    entries = {"input": spec.to_text(), "target": target.to_text(), **({"threshold": "4"} if name == "scores" else {})}
    return with_metadata(graph_of(nodes, [first], [last], values), entries)


def other_samples(name: str, directory: Path) -> Path:
    """Write a sample: 2, 3, … of numbers; the text ca; an image of red and, at its end, blue."""
    spec = OTHERS[name][0]
    if spec.kind == "image":
        pixels = np.zeros(spec.shape, np.uint8)
        pixels[:, :3, 0] = pixels[:, 3:, 2] = 255
        Image.fromarray(pixels).save(directory / "field.png")
        return directory / "field.png"
    if spec.kind == "tokens":
        (directory / "prompt.txt").write_text("ca")
        return directory / "prompt.txt"
    inputs = np.arange(2, 2 + np.prod(spec.shape))
    np.savez(directory / f"{name}.npz", inputs=inputs.reshape(1, *spec.shape).astype(spec.dtype))
    return directory / f"{name}.npz"


def test_every_kind_of_target_is_predicted_by_a_server_and_by_a_file(tmp_path: Path) -> None:
    samples = {name: other_samples(name, tmp_path) for name in OTHERS}
    masks = {name: ("--masks", tmp_path / "drawn") if name == "masks" else () for name in OTHERS}
    for name in OTHERS:
        (tmp_path / f"{name}.onnx").write_bytes(other_model(name))
        done = program("repository", tmp_path / f"{name}.onnx", "--name", name, "--output", tmp_path / "models")
        assert done.returncode == 0, done.stderr
    with served(tmp_path / "models", tmp_path / "log") as server:
        asked = {name: ("--server", server.grpc, "--model", name, *masks[name]) for name in OTHERS}
        by_server = {name: program("predict", samples[name], *asked[name], "--json") for name in OTHERS}
    for name, (spec, _, _, text) in OTHERS.items():
        file = ("--file", tmp_path / f"{name}.onnx", *masks[name])
        told, shown = program("predict", samples[name], *file, "--json"), program("predict", samples[name], *file)
        assert told.returncode == by_server[name].returncode == 0, by_server[name].stderr + told.stderr
        assert json.loads(told.stdout) == json.loads(by_server[name].stdout)
        drawn = f"  → {tmp_path / 'drawn' / 'field.mask.png'}" if name == "masks" else ""
        named = samples[name] if spec.kind in ("image", "tokens") else f"{name}.npz[0]"
        assert shown.stdout == f"{named}  {text}{drawn}\n"
    assert np.asarray(Image.open(tmp_path / "drawn" / "field.mask.png")).tolist() == [[0, 0, 0, 2]] * 2
    assert not list((tmp_path / "models" / "masks").glob("labels.txt"))
    refused_ = program("predict", samples["values"], "--file", tmp_path / "values.onnx", "--masks", tmp_path)
    assert (refused_.returncode, "masks is" in refused_.stderr) == (2, True)


def test_the_masks_of_a_folder_are_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "masks.onnx").write_bytes(other_model("masks"))
    for part in ("images", "masks"):
        (tmp_path / "fields" / part).mkdir(parents=True)
        other_samples("masks", tmp_path / "fields" / part)
    found = predict_paths(FileModel(tmp_path / "masks.onnx"), [str(tmp_path / "fields")], 1)
    assert [each.document["name"] for each in found] == [str(tmp_path / "fields" / "images" / "field.png")]


def test_an_unreachable_server_is_unavailable(pictures: list[Path]) -> None:
    done = program("predict", pictures[0], "--server", "127.0.0.1:1", "--model", "digits")
    assert done.returncode == 10
    assert (
        done.stderr == "moonfed-export: the server at 127.0.0.1:1 cannot be reached: Connection refused "
        "(docs: errors/unavailable)\n"
    )


def test_a_port_that_does_not_speak_grpc_is_reported(pictures: list[Path], tmp_path: Path) -> None:
    ModelDirectory(tmp_path / "models", "pets").publish(1, release(graph()))
    with served(tmp_path / "models", tmp_path / "log") as server:
        done = program("predict", pictures[0], "--server", server.http, "--model", "pets")
    assert done.returncode == 10
    assert f"the server at {server.http} does not speak gRPC" in done.stderr


def test_a_tls_server_is_verified(pictures: list[Path], tmp_path: Path) -> None:
    ModelDirectory(tmp_path / "models", "pets").publish(1, release(graph()))
    pair = [tmp_path / "key.pem", tmp_path / "certificate.pem"]
    other = [tmp_path / "another-key.pem", tmp_path / "another.pem"]
    for key, certificate in (pair, other):
        write_certificate(key, certificate)
    options = ("--tls-key", str(pair[0]), "--tls-certificate", str(pair[1]))
    with served(tmp_path / "models", tmp_path / "log", *options) as server:
        asked = ("predict", pictures[0], "--model", "pets", "--server", f"localhost:{server.ports['grpc_port']}")
        trusted = program(*asked, "--tls-ca", pair[1])
        strange, plaintext = program(*asked, "--tls-ca", other[1]), program(*asked)
    assert trusted.returncode == 0, trusted.stderr
    assert trusted.stdout.startswith(str(pictures[0]))
    for rejected in (strange, plaintext):
        assert (rejected.returncode, rejected.stdout) == (10, "")
        assert "does it need --tls-ca?" in rejected.stderr


def test_a_model_without_class_names_gives_numbers(tmp_path: Path, pictures: list[Path]) -> None:
    ModelDirectory(tmp_path / "models", "pets").publish(1, release(graph(), classes=()))
    with served(tmp_path / "models", tmp_path / "log") as server:
        done = program("predict", pictures[0], "--server", server.grpc, "--model", "pets", "--top", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{pictures[0]}  class ")


def test_labels_from_a_server_may_contain_colons(tmp_path: Path) -> None:
    proto = onnx.ModelProto.FromString(graph())
    scaled = onnx.helper.make_tensor_value_info("scaled", onnx.TensorProto.FLOAT, ["batch", 3])
    proto.graph.output.insert(0, scaled)  # before the probabilities
    content, names = proto.SerializeToString(), ("cat: tabby", "cat: other: black", "dog")
    ModelDirectory(tmp_path / "models", "pets").publish(1, release(content, classes=names))
    write_model(tmp_path / "models", "table", 1, linear())
    write_model(tmp_path / "models", "sum", 1, summing(), "max_batch_size: 8")
    pixels = np.zeros((4, 5, 3), np.uint8)
    with served(tmp_path / "models", tmp_path / "log") as server:
        found = ServedModel(server.grpc, "pets").predict("it", pixels, 3).document["classes"]
        features = ServedModel(server.grpc, "table")
        with refused(InvalidInput, "image files"):
            list(predict_paths(features, [str(tmp_path)], 1))
        with refused(InvalidInput, "model", "sum"):
            ServedModel(server.grpc, "sum")
    assert [(each["index"], each["label"]) for each in found] == list(enumerate(names))
    assert [each["confidence"] for each in found] == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_a_file_is_verified_with_the_version_that_it_belongs_to(
    checked: CheckedModel, pictures: list[Path], tmp_path: Path
) -> None:
    private, strange = create_keys(tmp_path / "ours"), create_keys(tmp_path / "theirs").with_suffix(".pub")
    public, directory = private.with_suffix(".pub"), ModelDirectory(tmp_path / "models", "digits")
    content = {"model.onnx": checked.graph, "MODEL_CARD.md": b"# card"}
    made = ModelRelease(interface=read_interface(checked.graph, "it"), classes=CLASSES, files=content)
    directory.publish(1, made, signer=ReleaseSigner(private))
    file = directory.path / "1" / "model.onnx"
    assert FileModel(file, [strange, public]).sample.shape == (8, 8, 1)
    with refused(UntrustedRelease, "key"):
        FileModel(file, [strange])
    (tmp_path / "copy.onnx").write_bytes(checked.graph)
    with refused(UntrustedRelease, "signature"):
        FileModel(tmp_path / "copy.onnx", [public])
    (directory.path / "1" / "MODEL_CARD.md").write_bytes(b"# best")
    done = program("predict", pictures[0], "--file", file, "--verify-key", public)
    assert (done.returncode, done.stdout) == (12, "")
    assert (
        done.stderr
        == "moonfed-export: MODEL_CARD.md of digits/1 was changed after it was signed (docs: errors/release-rejected)\n"
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "a model is needed"),
        (["--server", "127.0.0.1:8001"], 2, "a model is needed"),
        (
            ["--file", "m.onnx", "--server", "127.0.0.1:8001", "--model", "m"],
            2,
            "file is given together",
        ),
        (["--file", "m.onnx", "--tls-ca", "ca.pem"], 2, "file is given together"),
        (["--server", "localhost", "--model", "m"], 2, "server is 'localhost'"),
        (["--server", "localhost:1", "--model", "m", "--tls-ca", "no.pem"], 3, "tls-ca is 'no.pem'"),
        (
            ["--server", "localhost:1", "--model", "m", "--verify-key", "k"],
            2,
            "verify-key is given without",
        ),
        (["--file", "{tmp}/text.png"], 2, "text.png is not an"),
        (["--file", "{tmp}/absent.onnx"], 3, "absent.onnx'; there is no"),
        (
            ["--file", "{tmp}/pets.onnx"],
            2,
            "pets.onnx does not describe",
        ),
        (["{tmp}/absent.png", "--file", "{tmp}/digits.onnx"], 3, "there is no file"),
        (["{tmp}/text.png", "--file", "{tmp}/digits.onnx"], 2, "text.png cannot be read"),
    ],
)
def test_invalid_requests_are_rejected(
    options: list[str], code: int, message: str, checked: CheckedModel, pictures: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    (tmp_path / "pets.onnx").write_bytes(graph())
    (tmp_path / "text.png").write_text("no picture")
    done = program("predict", pictures[0], *(option.format(tmp=tmp_path) for option in options))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
