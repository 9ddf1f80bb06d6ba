"""Sessions of ONNX Runtime and their providers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from moonfed.errors import Corrupt, InvalidInput, Unavailable
from moonfed.export import scoring
from moonfed.models import onnx_runtime
from moonfed.models.onnx_runtime import SessionSettings, open_session, require_provider
from tests.support.model_repositories import linear
from tests.support.refusals import refused


def test_a_graph_that_reads_other_files_is_rejected_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load_from_string(linear())
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../operator/key.pem")
    tensor.ClearField("raw_data")

    def load(*_: object, **__: object) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    with pytest.raises(InvalidInput, match="weights"):
        open_session(model.SerializeToString(), SessionSettings())


def test_a_graph_that_cannot_be_inspected_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime ignores the end of this one, a group, and would read the other file."""
    model = onnx.load_from_string(linear())
    model.graph.initializer[0].external_data.add(key="location", value="../../operator/key.pem")

    def load(*_: object, **__: object) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    with pytest.raises(Corrupt, match="the graph is not an ONNX model, or is damaged"):
        open_session(model.SerializeToString() + b"\xfb\x07\xfc\x07", SessionSettings())


@pytest.mark.parametrize("module", [onnx_runtime, scoring])
def test_only_onnx_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """ONNX Runtime's own format can be written so that it passes the inspection as an ONNX model."""
    file, options = tmp_path / "model.ort", onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(file)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(linear(), options, providers=["CPUExecutionProvider"])
    assert onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"]).get_inputs()
    monkeypatch.setattr(module, "require_self_contained", lambda _: None)
    open_it = partial(open_session, settings=SessionSettings()) if module is onnx_runtime else scoring.open_session
    assert open_it(linear())
    with pytest.raises(Exception, match="protobuf parsing failed"):
        open_it(file.read_bytes())


def test_a_missing_provider_is_named_with_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with refused(Unavailable, "provider", "cuda"):
        require_provider("cuda")
    require_provider("cpu")


def test_a_provider_that_silently_falls_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)

    class OnCpu:
        def __init__(self, *_: object, **__: object) -> None: ...

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(onnxruntime, "InferenceSession", OnCpu)
    with refused(Unavailable, "provider", "cuda"):
        open_session(linear(), SessionSettings(provider="cuda"))


def test_a_provider_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\n  driver")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with refused(Unavailable, "provider", "cuda"):
        open_session(linear(), SessionSettings(provider="cuda"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"provider": "tpu"}, "provider is 'tpu'"),
        ({"intra_op_threads": -1}, "intra_op_threads is -1"),
    ],
)
def test_wrong_settings_are_rejected(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        SessionSettings(**fields)  # type: ignore[arg-type]
    assert str(error.value).startswith(f"{message}; ")
