from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from moonfed.errors import InvalidInput
from moonfed.serving.inference_request import Array
from moonfed.serving.model_manager import ModelManager
from moonfed.serving.onnx_session import OnnxSession, SessionSettings, run_session
from tests.support.model_repositories import (
    BATCHED,
    INPUT,
    NOT_BATCHING,
    OUTPUT,
    ask,
    batch_of,
    identity,
    linear,
    put,
    serve,
    write_model,
)

WARM_UP = (
    'model_warmup {{ name: "first" batch_size: {size} count: {count} inputs {{ key: "inputs" value {{ {value} }} }} }}'
)


def loaded(repository: Path, config: str, content: bytes | None = None) -> ModelManager:
    write_model(repository, "linear", 1, linear() if content is None else content, config)
    models = serve(repository, explicit=True)
    models.load("linear")
    return models


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('name: "other"', "unexpected directory name 'linear' for model 'other', directory name must equal model name"),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for linear"),
        ("sequence_batching { }", "sets sequence_batching, which this server lacks"),
        (
            'platform: "ensemble"',
            "platform is 'ensemble' for linear; they must be 'onnxruntime' and 'onnxruntime_onnx'",
        ),
        (
            BATCHED + INPUT.replace("dims: 4", "dims: 5") + OUTPUT,
            r"the model has FP32 \[-1,4\], the configuration FP32 \[-1,5\]",
        ),
        (BATCHED + INPUT.replace("FP32", "FP16") + OUTPUT, r"has FP32 \[-1,4\], the configuration FP16 \[-1,4\]"),
        (BATCHED + INPUT.replace("FP32", "BF16") + OUTPUT, "data_type is TYPE_BF16; it must be one of TYPE_BOOL"),
        (
            BATCHED + INPUT + INPUT.replace("inputs", "more") + OUTPUT,
            "configuration expects 2 inputs, model provides 1",
        ),
        (BATCHED + INPUT + OUTPUT.replace("probabilities", "logits"), "'logits', allowed outputs are: probabilities"),
        (BATCHED + INPUT + OUTPUT.replace("dims", "reshape { shape: [3, 1] } dims"), "sets reshape"),
        (BATCHED + "instance_group { kind: KIND_MODEL }", "instance group kind is KIND_MODEL"),
        (BATCHED + 'parameters { key: "intra_op_thread_count" value { string_value: "two" } }', "is 'two' for linear"),
        (
            BATCHED + "instance_group { kind: KIND_GPU } optimization { execution_accelerators { "
            'gpu_execution_accelerator { name: "openvino" } } }',
            "unknown Execution Accelerator 'openvino' is requested for linear",
        ),
        (
            WARM_UP.format(size=1, count=1, value="data_type: TYPE_FP32 dims: -1 zero_data: true"),
            "variable-size dimensions",
        ),
        (WARM_UP.format(size=1, count=1, value="data_type: TYPE_FP32 dims: 3 zero_data: true"), "onnx runtime error"),
        (
            WARM_UP.format(size=1, count=1, value="data_type: TYPE_INT8 dims: 4 zero_data: true"),
            "has TYPE_INT8 .* TYPE_FP32",
        ),
        (
            WARM_UP.format(size=1, count=1, value='data_type: TYPE_FP32 dims: 4 input_data_file: "none"'),
            "model_warmup of 'linear' cannot read none",
        ),
    ],
)
def test_a_config_that_cannot_be_served_says_why(tmp_path: Path, config: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^load failed for model 'linear': .*{says}"):
        loaded(tmp_path, config)


def test_what_a_config_leaves_out_is_completed(tmp_path: Path) -> None:
    config = loaded(tmp_path, BATCHED).config("linear")
    assert (config.name, config.backend, config.platform) == ("linear", "onnxruntime", "onnxruntime_onnx")
    assert (config.default_model_filename, config.version_policy.latest.num_versions) == ("model.onnx", 1)
    assert [(each.name, each.data_type, list(each.dims)) for each in (*config.input, *config.output)] == [
        ("inputs", 11, [4]),
        ("probabilities", 11, [3]),
    ]
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (8, True)
    assert [(each.name, each.kind, each.count) for each in config.instance_group] == [("linear_0", 2, 2)]


def test_a_model_of_a_fixed_batch_is_served_without_batching(tmp_path: Path) -> None:
    models = loaded(tmp_path, "", linear(batch=2))
    assert models.config("linear").max_batch_size == 0
    assert models.metadata("linear").inputs[0].shape == (2, 4)
    assert models.infer(ask("linear", batch_of(2))).outputs["probabilities"].shape == (2, 3)
    with pytest.raises(InvalidInput, match=r"Expected \[2,4\], got \[1,4\]"):
        models.infer(ask("linear", batch_of(1)))
    with pytest.raises(InvalidInput, match="does not support batching while non-zero max_batch_size is specified"):
        loaded(tmp_path, "max_batch_size: 4", linear(batch=2))


@pytest.mark.parametrize(
    ("written", "threads"), [("", 3), ('parameters { key: "intra_op_thread_count" value { string_value: "2" } }', 2)]
)
def test_a_config_may_say_how_many_threads_a_run_has(tmp_path: Path, written: str, threads: int) -> None:
    write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + written)
    sessions = serve(tmp_path, intra_op_threads=3)._loader.ready["linear", ""]._sessions
    assert [each._session.get_session_options().intra_op_num_threads for each in sessions] == [threads]


def test_a_model_file_may_have_another_name(tmp_path: Path) -> None:
    model = write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + 'default_model_filename: "round-7.onnx"')
    (model / "1" / "model.onnx").rename(model / "1" / "round-7.onnx")
    assert serve(tmp_path).is_ready("linear", "1")


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

    monkeypatch.setattr("moonfed.serving.warm_up.run_session", recorded)
    models = serve(tmp_path)
    assert models.is_ready("linear")
    assert [each.shape for each in fed] == [(3, 4), (3, 4)]
    if "file" in value:
        assert fed[0].tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert models.statistics("linear")[0].execution_count == 0


def test_every_session_of_a_version_is_warmed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on several GPUs, each of which has one; instances on the CPU share theirs."""
    warm_up = WARM_UP.format(size=1, count=1, value="data_type: TYPE_FP32 dims: 4 zero_data: true")
    warmed: list[OnnxSession] = []

    def recorded(session: OnnxSession, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        warmed.append(session)
        return run_session(session, names, feeds)

    def two(path: Path, config: object, settings: SessionSettings) -> list[OnnxSession]:
        return [OnnxSession(path, settings), OnnxSession(path, settings)]

    monkeypatch.setattr("moonfed.serving.model_version.open_sessions", two)
    monkeypatch.setattr("moonfed.serving.warm_up.run_session", recorded)
    models = loaded(tmp_path, NOT_BATCHING + warm_up)
    assert warmed == models._loader.ready["linear", ""]._sessions


def test_a_warm_up_of_batch_size_0_is_none(tmp_path: Path) -> None:
    warm_up = WARM_UP.format(size=0, count=1, value="data_type: TYPE_FP32 dims: 3 zero_data: true")
    assert loaded(tmp_path, NOT_BATCHING + warm_up).is_ready("linear")


def test_strings_and_whole_numbers_are_warmed_up(tmp_path: Path) -> None:
    for name, kind, written in (("text", TensorProto.STRING, "STRING"), ("flags", TensorProto.BOOL, "BOOL")):
        value = f"data_type: TYPE_{written} dims: 2 random_data: true"
        warm_up = WARM_UP.format(size=2, count=1, value=value).replace('"inputs"', '"x"')
        write_model(tmp_path, name, 1, identity(kind), BATCHED + warm_up)
        assert serve(tmp_path).is_ready(name)
