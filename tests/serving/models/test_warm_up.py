from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.inference_request import Array
from moonfed.serving.models.onnx_session import OnnxSession, run_session
from tests.support.model_repositories import (
    BATCHED,
    NOT_BATCHING,
    WARM_UP,
    identity,
    linear,
    put,
    serve,
    serve_linear,
    write_model,
)


@pytest.mark.parametrize(
    "value",
    ["zero_data: true", "random_data: true", 'input_data_file: "sample"'],
)
def test_a_model_is_warmed_up_before_it_is_ready(tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up = WARM_UP.format(size=3, count=2, value=f"data_type: TYPE_FP32 dims: 4 {value}")
    model = write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + warm_up)
    (model / "warmup").mkdir()
    put(model / "warmup" / "sample", np.arange(4, dtype=np.float32).tobytes())
    fed: list[Array] = []

    def recorded(session: OnnxSession, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        fed.append(feeds["inputs"])
        return run_session(session, names, feeds)

    monkeypatch.setattr("moonfed.serving.models.warm_up.run_session", recorded)
    models = serve(tmp_path)
    assert models.is_ready("linear")
    assert [each.shape for each in fed] == [(3, 4), (3, 4)]
    if "file" in value:
        assert fed[0].tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert models.statistics("linear")[0].execution_count == 0


def test_every_session_of_a_version_is_warmed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open one session per instance, as on several GPUs; instances on the CPU share theirs."""
    warm_up = WARM_UP.format(size=1, count=1, value="data_type: TYPE_FP32 dims: 4 zero_data: true")
    warmed: list[OnnxSession] = []

    def recorded(session: OnnxSession, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        warmed.append(session)
        return run_session(session, names, feeds)

    def two(graph: bytes, config: object, settings: SessionSettings) -> list[OnnxSession]:
        return [OnnxSession(graph, settings), OnnxSession(graph, settings)]

    monkeypatch.setattr("moonfed.serving.models.version.open_sessions", two)
    monkeypatch.setattr("moonfed.serving.models.warm_up.run_session", recorded)
    models = serve_linear(tmp_path, NOT_BATCHING + warm_up)
    assert warmed == models._loader.ready["linear", ""]._sessions


def test_a_warm_up_of_batch_size_0_is_skipped(tmp_path: Path) -> None:
    warm_up = WARM_UP.format(size=0, count=1, value="data_type: TYPE_FP32 dims: 3 zero_data: true")
    assert serve_linear(tmp_path, NOT_BATCHING + warm_up).is_ready("linear")


def test_models_with_strings_and_booleans_are_warmed_up(tmp_path: Path) -> None:
    for name, kind, written in (("text", TensorProto.STRING, "STRING"), ("flags", TensorProto.BOOL, "BOOL")):
        value = f"data_type: TYPE_{written} dims: 2 random_data: true"
        warm_up = WARM_UP.format(size=2, count=1, value=value).replace('"inputs"', '"x"')
        write_model(tmp_path, name, 1, identity(kind), BATCHED + warm_up)
        assert serve(tmp_path).is_ready(name)
