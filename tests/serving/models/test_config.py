from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from tests.support.model_repositories import (
    BATCHED,
    INPUT,
    NOT_BATCHING,
    OUTPUT,
    WARM_UP,
    ask,
    batch_of,
    linear,
    serve,
    serve_linear,
    write_model,
)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('name: "other"', "unexpected directory name 'linear' for model 'other', directory name must equal model name"),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for linear"),
        ("sequence_batching { }", "sets sequence_batching, which this server lacks"),
        (BATCHED + "response_cache { enable: true }", "sets response_cache { enable: true }, which this server lacks"),
        (BATCHED + "model_transaction_policy { decoupled: true }", "sets model_transaction_policy { decoupled: true }"),
        (BATCHED + 'model_repository_agents { agents { name: "checksum" } }', "sets model_repository_agents"),
        (BATCHED + 'metric_tags { key: "a" value: "b" }', "sets metric_tags"),
        (BATCHED + "instance_group { rate_limiter { priority: 2 } }", "sets rate_limiter"),
        (BATCHED + 'instance_group { host_policy: "numa_0" }', "sets host_policy"),
        (BATCHED + "optimization { graph { level: 1 } }", "sets graph"),
        (BATCHED + "optimization { priority: PRIORITY_MAX }", "sets priority"),
        (
            BATCHED + 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }',
            "sets cpu_execution_accelerator",
        ),
        (
            BATCHED + 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" '
            'parameters { key: "precision_mode" value: "FP16" } } } }',
            "sets parameters",
        ),
        (
            BATCHED + 'parameters { key: "execution_mode" value { string_value: "1" } }',
            "sets the parameter execution_m",
        ),
        (BATCHED + 'parameters { key: "inter_op_thread_count" value { string_value: "2" } }', "inter_op_thread_count"),
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
        (BATCHED + INPUT.replace("data_type: TYPE_FP32", "") + OUTPUT, "model input 'inputs' must specify 'data_type'"),
        (
            BATCHED + INPUT + OUTPUT.replace("data_type: TYPE_FP32", ""),
            "model output 'probabilities' must specify 'data_type'",
        ),
        (BATCHED + INPUT.replace('name: "inputs"', "") + OUTPUT, "model input must specify 'name'"),
        (BATCHED + INPUT.replace("dims: 4", "dims: 0") + OUTPUT, "model input 'inputs' dimension must be integer >= 1"),
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
def test_an_unservable_config_gives_its_reason(tmp_path: Path, config: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"^load failed for model 'linear': .*{says}"):
        serve_linear(tmp_path, config)


def test_an_incomplete_config_is_completed(tmp_path: Path) -> None:
    config = serve_linear(tmp_path, BATCHED).config("linear")
    assert (config.name, config.backend, config.platform) == ("linear", "onnxruntime", "onnxruntime_onnx")
    assert (config.default_model_filename, config.version_policy.latest.num_versions) == ("model.onnx", 1)
    assert [(each.name, each.data_type, list(each.dims)) for each in (*config.input, *config.output)] == [
        ("inputs", 11, [4]),
        ("probabilities", 11, [3]),
    ]
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (8, True)
    assert [(each.name, each.kind, each.count) for each in config.instance_group] == [("linear_0", 2, 2)]


def test_a_model_of_a_fixed_batch_is_served_without_batching(tmp_path: Path) -> None:
    models = serve_linear(tmp_path, "", linear(batch=2))
    assert models.config("linear").max_batch_size == 0
    assert models.metadata("linear").inputs[0].shape == (2, 4)
    assert models.infer(ask("linear", batch_of(2))).outputs["probabilities"].shape == (2, 3)
    with pytest.raises(InvalidInput, match=r"Expected \[2,4\], got \[1,4\]"):
        models.infer(ask("linear", batch_of(1)))
    with pytest.raises(InvalidInput, match="does not support batching while non-zero max_batch_size is specified"):
        serve_linear(tmp_path, "max_batch_size: 4", linear(batch=2))


@pytest.mark.parametrize(
    ("written", "threads"), [("", 3), ('parameters { key: "intra_op_thread_count" value { string_value: "2" } }', 2)]
)
def test_a_config_may_set_the_threads_of_a_run(tmp_path: Path, written: str, threads: int) -> None:
    write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + written)
    sessions = serve(tmp_path, intra_op_threads=3)._loader.ready["linear", ""]._sessions
    assert [each._session.get_session_options().intra_op_num_threads for each in sessions] == [threads]


def test_a_model_file_may_have_another_name(tmp_path: Path) -> None:
    model = write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + 'default_model_filename: "round-7.onnx"')
    (model / "1" / "model.onnx").rename(model / "1" / "round-7.onnx")
    assert serve(tmp_path).is_ready("linear", "1")
