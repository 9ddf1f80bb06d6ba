"""KServe's client against our server; it runs in a separate environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.serving.test_readme import GUIDE, blocks, digits
from tests.support.kserve_environment import kserve_python
from tests.support.model_repositories import linear, write_model
from tests.support.server_process import served

pytestmark = pytest.mark.slow

REQUESTS = Path(__file__).parents[1] / "support" / "kserve_requests.py"


@pytest.fixture(scope="module")
def python() -> Path:
    return kserve_python()


def test_kserves_client_is_answered_on_both_protocols(python: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "repository", "linear", 1, linear())
    with served(tmp_path / "repository", tmp_path / "log") as server:
        ended = subprocess.run(
            [str(python), str(REQUESTS), server.http, server.grpc], capture_output=True, text=True, check=False
        )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    path = tmp_path / "repository" / "linear" / "1" / "model.onnx"
    inputs = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    answer = {"id": "seven", "model": "linear", "output": "probabilities"}
    answer["hex"] = session.run(None, {"inputs": inputs})[0].tobytes().hex()
    for protocol, forms in (("http", ("json", "binary")), ("grpc", ("values", "raw"))):
        told = found[protocol]
        assert (told["live"], told["ready"], told["model_ready"], told["other_ready"]) == (True, True, True, False)
        assert [told[form] for form in forms] == [answer, answer]
        assert "Request for unknown model: 'unheard-of' is not found" in told["error"]


def test_the_guides_program_with_kserve_runs(python: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "repository", "digits", 1, digits(), config="max_batch_size: 32")
    (tmp_path / "parts").mkdir()
    np.savez(tmp_path / "parts" / "test.npz", inputs=np.zeros((6, 8, 8, 1), np.uint8))
    (program,) = blocks(GUIDE, "## Ask with KServe's client", "python")
    with served(tmp_path / "repository", tmp_path / "log") as server:
        program = program.replace("localhost:8000", server.http)
        ended = subprocess.run([str(python), "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["[5, 10]"], ended.stderr
