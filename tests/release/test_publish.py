"""`moonfed-export repository` and `roll-back` as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput
from moonfed.release.model_file import CheckedModel
from moonfed.release.publish import Candidate, gather_facts
from tests.support.control_service import Control
from tests.support.pet_models import graph
from tests.support.refusals import refused
from tests.support.trained_model import CLASSES, Trained

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

VERSION_FILES = {"model.onnx", "MODEL_CARD.md", "bom.cdx.json", "confusion.svg"}


def program(*arguments: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command; `without`: a package that it cannot import."""
    absent = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    path = os.pathsep.join([str(Path("common").absolute()), str(Path("proto").absolute()), str(Path.cwd())])
    return subprocess.run(
        [sys.executable, "-c", f"{absent}from moonfed.cli.program import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def published(control: Control, trained: Trained, output: Path, *others: object) -> subprocess.CompletedProcess[str]:
    where = ("--insecure", "--coordinator", control.address)
    return program(
        "repository", "r", "--data", trained.test_file, "--name", "digits", "--output", output, *where, *others
    )


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def test_publishing_a_run_is_deterministic(
    trained_run: Control, trained: Trained, checked: CheckedModel, tmp_path: Path
) -> None:
    done = published(trained_run, trained, tmp_path / "models", "--json")
    assert done.returncode == 0, done.stderr
    model = tmp_path / "models" / "digits"
    assert json.loads(done.stdout) == {
        "path": str(model / "1"), "version": 1, "new": True, "kept_config": False, "served": [1]
    }  # fmt: skip
    assert names(model) == {"config.pbtxt", "labels.txt", "1"}
    assert names(model / "1") == VERSION_FILES
    assert (model / "1" / "model.onnx").read_bytes() == checked.graph
    assert (model / "labels.txt").read_text().split() == list(CLASSES)
    again = published(trained_run, trained, tmp_path / "others")
    assert again.stdout == f"{tmp_path}/others/digits/1 holds round 1 of run 'r'\n"
    for name in ("config.pbtxt", "labels.txt", *(f"1/{name}" for name in VERSION_FILES)):
        assert (tmp_path / "others" / "digits" / name).read_bytes() == (model / name).read_bytes(), name
    assert published(trained_run, trained, tmp_path / "models").stdout == f"{model}/1 already held round 1 of run 'r'\n"


def test_the_configuration_describes_the_model_that_onnx_runtime_loads(
    trained_run: Control, trained: Trained, tmp_path: Path
) -> None:
    published(trained_run, trained, tmp_path, "--max-batch-size", 8, "--instances", 2)
    text = (tmp_path / "digits" / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    session = onnxruntime.InferenceSession(
        str(tmp_path / "digits" / "1" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    (given,), (got,) = session.get_inputs(), session.get_outputs()
    assert [(entry.name, list(entry.dims)) for entry in config.input] == [(given.name, given.shape[1:])]
    assert [(entry.name, list(entry.dims)) for entry in config.output] == [(got.name, got.shape[1:])]
    assert (given.type, config.input[0].data_type) == ("tensor(uint8)", model_config_pb2.TYPE_UINT8)
    assert (got.type, config.output[0].data_type) == ("tensor(float)", model_config_pb2.TYPE_FP32)
    assert (config.max_batch_size, config.instance_group[0].count) == (8, 2)
    assert config.output[0].label_filename == "labels.txt"


def test_a_file_is_published_as_its_round_or_the_next_version(checked: CheckedModel, tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    (tmp_path / "pets.onnx").write_bytes(graph())
    models = tmp_path / "models"

    def publish(file: str, name: str, *others: object) -> str:
        done = program("repository", tmp_path / file, "--name", name, "--output", models, *others)
        assert done.returncode == 0, done.stderr
        return done.stdout

    publish("digits.onnx", "digits", "--version", 4)
    publish("digits.onnx", "digits")  # whose metadata say round 1
    assert names(models / "digits") == {"config.pbtxt", "labels.txt", "1", "4"}
    publish("pets.onnx", "pets")
    (tmp_path / "pets.onnx").write_bytes(graph(2))
    publish("pets.onnx", "pets")
    assert names(models / "pets") == {"config.pbtxt", "1", "2"}  # it names no classes
    back = program("roll-back", "--repository", models, "--name", "pets", without="onnx")  # as where only `serve` is
    assert back.stdout == "pets serves version 1, no longer 2\n"
    (tmp_path / "pets.onnx").write_bytes(graph(3))
    assert "servers serve version 1, because of version_policy in config.pbtxt" in publish("pets.onnx", "pets")
    assert json.loads(
        program("roll-back", "--repository", models, "--name", "pets", "--version", 3, "--json").stdout
    ) == {
        "from": 1,
        "to": 3,
    }


def test_publishing_a_file_needs_no_torch(checked: CheckedModel, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    words = ["repository", str(tmp_path / "digits.onnx"), "--data", str(trained.test_file), "--name", "digits"]
    words += ["--output", str(tmp_path / "models")]
    code = (
        f"import sys; from moonfed.cli.program import app; "
        f"app({words!r}, standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## Quality" in (tmp_path / "models" / "digits" / "1" / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("moonfed.target", "a, b", ("target", ANY)),
        ("moonfed.target", '{"kind": "sound", "shape": []}', ("target.kind", "sound")),
        ("moonfed.input", '{"kind": "image"}', ("input", ANY)),
        ("moonfed.input", '{"kind": "sound", "shape": [3]}', ("input.kind", "sound")),
    ],
)
def test_damaged_metadata_are_rejected(
    key: str, value: str, named: tuple[str, object], checked: CheckedModel, trained: Trained, tmp_path: Path
) -> None:
    proto = onnx.ModelProto.FromString(checked.graph)
    next(entry for entry in proto.metadata_props if entry.key == key).value = value
    candidate = Candidate(graph=proto.SerializeToString(), where="model.onnx", round=1)
    with refused(InvalidInput, *named):
        gather_facts("digits", 1, candidate, NpzSource(trained.test_file))


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["serve", "{tmp}"], "starlette.applications", "serve"),
        (["repository", "{tmp}/pets.onnx", "--name", "pets", "--output", "{tmp}/models"], "onnx", "export"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(
    words: list[str], package: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "pets.onnx").write_bytes(graph())
    done = program(*(word.format(tmp=tmp_path) for word in words), without=package)
    assert done.returncode == 3
    assert f"is not installed; run pip install 'moonfed[{extra}]'" in done.stderr


def test_an_existing_configuration_is_reported(checked: CheckedModel, tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    own = tmp_path / "models" / "digits" / "config.pbtxt"
    own.parent.mkdir(parents=True)
    own.write_text('backend: "onnxruntime"  # mine\n')
    done = program("repository", tmp_path / "digits.onnx", "--name", "digits", "--output", tmp_path / "models")
    assert done.stderr == f"moonfed-export: {own} exists and was not changed\n"
    assert own.read_text() == 'backend: "onnxruntime"  # mine\n'


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["r"], 2, "data is missing"),
        (["{tmp}/text"], 2, "text' is a file"),
        (["{tmp}/good.onnx", "--output", "{tmp}/text"], 2, "repository is '.*text'"),
        (["{tmp}/good.onnx", "--round", "3"], 2, "round is 3"),
        (["absent.onnx"], 3, "there is no file 'absent.onnx'"),
        (["{tmp}/broken.onnx"], 2, "broken.onnx is not an"),
        (["{tmp}/strange.onnx"], 2, "strange.onnx cannot be run"),
        (["{tmp}/lying.onnx"], 2, r"output 'probabilities' of .* has shape \[1, 3\]; its graph declares \[1, 4\]"),
        (["{tmp}/good.onnx", "--sign", "{tmp}/absent.pem"], 3, "sign is '.*absent.pem'"),
    ],
)
def test_an_unservable_model_is_rejected_and_nothing_is_written(
    arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "good.onnx").write_bytes(graph())
    (tmp_path / "text").write_text("no model")
    (tmp_path / "broken.onnx").write_bytes(graph()[:-40])
    strange = onnx.ModelProto.FromString(graph())
    strange.graph.node[0].domain, strange.graph.node[0].op_type = "nowhere", "Unknown"
    strange.opset_import.add(domain="nowhere", version=1)
    (tmp_path / "strange.onnx").write_bytes(strange.SerializeToString())
    lying = onnx.ModelProto.FromString(graph())
    lying.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    (tmp_path / "lying.onnx").write_bytes(lying.SerializeToString())
    words = [argument.format(tmp=tmp_path) for argument in arguments]
    done = program("repository", "--name", "pets", "--output", tmp_path / "models", *words)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith("moonfed-export: ")
    assert re.search(message, line), line
    assert not list((tmp_path / "models").rglob("*.onnx"))


def test_a_runs_initial_weights_need_an_explicit_version(
    trained_run: Control, trained: Trained, tmp_path: Path
) -> None:
    rejected = published(trained_run, trained, tmp_path, "--round", 0)
    assert rejected.returncode == 2
    assert "is the initial model" in rejected.stderr
    assert "versions start at 1" in rejected.stderr
    assert published(trained_run, trained, tmp_path, "--round", 0, "--version", 3).returncode == 0
    card = (tmp_path / "digits" / "3" / "MODEL_CARD.md").read_text()
    assert card.startswith("# digits, version 3\n")
    assert "round 0 of the federated run `r`" in card


def test_a_version_is_signed_on_request(
    checked: CheckedModel, tmp_path: Path, verifies: Callable[[Path, Path], bool]
) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    from tests.release.test_signing import write_keys

    key = write_keys(tmp_path)
    (tmp_path / "digits.onnx").write_bytes(checked.graph)
    words = ("repository", tmp_path / "digits.onnx", "--name", "digits", "--output", tmp_path / "models")
    assert program(*words, "--sign", key).returncode == 0
    signed = {"model.sig", "config.pbtxt", "labels.txt"}
    assert names(tmp_path / "models" / "digits" / "1") == VERSION_FILES - {"confusion.svg"} | signed
    assert verifies(tmp_path / "models" / "digits" / "1", tmp_path / "key.pub")
    assert program(*words, "--sign", key).returncode == 0  # there, and signed
    assert program(*words, "--version", 2).returncode == 0
    unsigned = program(*words, "--version", 2, "--sign", key)
    assert unsigned.returncode == 4
    assert "exists without a signature" in unsigned.stderr
    again = ("sign-release", "--repository", tmp_path / "models", "--name", "digits", "--sign", key)
    assert program(*again).stdout == f"signed versions 1, 2 of {tmp_path / 'models' / 'digits'}\n"
    assert verifies(tmp_path / "models" / "digits" / "2", tmp_path / "key.pub")


def test_embeddings_are_served_next_to_the_probabilities(checked: CheckedModel, tmp_path: Path) -> None:
    """Every output of the graph is configured, including a second one."""
    proto = onnx.ModelProto.FromString(checked.graph)
    first = proto.graph.node[-1].input[0]
    proto.graph.output.append(onnx.helper.make_tensor_value_info(first, onnx.TensorProto.FLOAT, ["batch", 10]))
    (tmp_path / "digits.onnx").write_bytes(proto.SerializeToString())
    done = program("repository", tmp_path / "digits.onnx", "--name", "digits", "--output", tmp_path / "models")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "models" / "digits" / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert [(entry.name, entry.label_filename) for entry in config.output] == [
        ("probabilities", "labels.txt"),
        (first, ""),
    ]
    assert np.all([list(entry.dims) == [10] for entry in config.output])
