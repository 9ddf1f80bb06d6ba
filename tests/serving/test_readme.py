"""The requests in the README and the documentation, run verbatim against a real server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.model_repositories import graph, write_model
from tests.support.server_process import ROOT, Server, served

README, GUIDE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "serving.md").read_text()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")]


def blocks(text: str, section: str, language: str) -> list[str]:
    """Return the fenced blocks of a section."""
    body = text.split(section, 1)[1].split("\n##", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", body, re.DOTALL)


def curls(text: str, section: str) -> list[list[str]]:
    lines = "".join(blocks(text, section, "sh")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("curl ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's working directory, with models and request.json."""
    root = tmp_path_factory.mktemp("reader")
    write_model(root / "models", "digits", 3, digits(), config="max_batch_size: 32")
    (root / "request.json").write_text(blocks(README, "### 7. Serve the model", "json")[0])
    (root / "parts").mkdir()
    images = (255 * np.eye(9, 64, dtype=np.uint8)).reshape(9, 8, 8, 1)  # each a point at a place of its own
    np.savez(root / "parts" / "test.npz", inputs=images, labels=np.zeros(9, np.int64))
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served(folder / "models", folder / "log") as started:
        yield started


def digits() -> bytes:
    """Build a graph with probabilities [B, 10] of inputs [B, 8, 8, 1]."""
    weights = np.random.default_rng(0).normal(size=(64, 10), scale=0.01).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["inputs"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    inputs = [helper.make_tensor_value_info("inputs", TensorProto.UINT8, ["B", 8, 8, 1])]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["B", 10])]
    return graph(nodes, inputs, outputs, [numpy_helper.from_array(weights, "weights")])


def run_curl(command: list[str], server: Server, folder: Path) -> str:
    asked = [word.replace("localhost:8000", server.http) for word in command]
    ended = subprocess.run(
        [*asked, "--silent", "--show-error", "--fail"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, (command, ended.stderr)
    return ended.stdout


def direct(folder: Path, images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[list[float]]:
    session = onnxruntime.InferenceSession(folder / "models/digits/3/model.onnx", providers=["CPUExecutionProvider"])
    found: list[list[float]] = session.run(None, {"inputs": images})[0].tolist()
    return found


def test_the_readmes_commands_are_answered(server: Server, folder: Path) -> None:
    ready, metadata, answer = (
        json.loads(run_curl(command, server, folder)) for command in curls(README, "### 7. Serve the model")
    )
    assert ready == {"ready": True}
    assert metadata["inputs"] == [{"name": "inputs", "datatype": "UINT8", "shape": [-1, 8, 8, 1]}]
    picture = json.loads((folder / "request.json").read_text())["inputs"][0]
    images = np.array(picture["data"], np.uint8).reshape(picture["shape"])
    assert (answer["id"], answer["model_version"]) == ("a-zero", "3")
    assert answer["outputs"][0]["shape"] == [1, 10]
    assert answer["outputs"][0]["data"] == direct(folder, images)[0]


def test_the_guides_commands_are_answered(server: Server, folder: Path) -> None:
    commands = curls(GUIDE, "## Ask with curl")
    assert len(commands) == 6
    for command in commands:
        assert json.loads(run_curl(command, server, folder))


def test_the_guides_program_with_tritonclient_runs(server: Server, folder: Path) -> None:
    (program,) = blocks(GUIDE, "## Ask with tritonclient", "python")
    program = program.replace("localhost:8000", server.http)
    ended = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    expected = np.array(direct(folder, np.load(folder / "parts" / "test.npz")["inputs"][:5])).argmax(axis=1)
    assert ended.stdout.strip() == str(expected), ended.stderr
