"""config.pbtxt: reading it, rejecting unsupported settings, completing the rest from the ONNX model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.errors import InvalidInput
from moonfed.serving.models.inference_request import TensorMetadata
from moonfed.serving.models.repository import read_file
from moonfed.serving.models.tensor_codec import format_shape, from_config_type, to_config_type

CONFIG_FILE = "config.pbtxt"
BACKEND, PLATFORM, MODEL_FILE = "onnxruntime", "onnxruntime_onnx", "model.onnx"
DEFAULT_MAX_BATCH_SIZE = 4  # Triton's
_UNSUPPORTED = (
    *("sequence_batching", "ensemble_scheduling", "batch_input", "batch_output", "model_operations", "runtime"),
    *("cc_model_filenames", "metric_tags", "model_metrics", "model_repository_agents"),
)
_UNSUPPORTED_IN_TENSORS = ("reshape", "is_shape_tensor", "allow_ragged_batch", "optional", "is_non_linear_format_io")
_UNSUPPORTED_IN_BATCHING = ("priority_levels", "priority_queue_policy")
_UNSUPPORTED_IN_GROUPS = ("rate_limiter", "secondary_devices", "profile", "passive", "host_policy")
_UNSUPPORTED_IN_OPTIMIZATION = ("graph", "priority", "cuda", "eager_batching")  # others, of memory, change no answer
_UNSUPPORTED_PARAMETERS = re.compile(  # of Triton's ONNX Runtime backend; others are a user's own
    r"execution_mode|inter_op_thread_count|enable_mem_(arena|pattern)|memory\..*|session\..*|optimization\..*"
    r"|cudnn_conv_algo_search|gpu_mem_limit|arena_extend_strategy"
)

_ZERO = re.compile(rb"(?m)^[^#\n\"]*\bmax_batch_size\s*:\s*[-+]?0+\b")

Config = Any  # a ModelConfig; tritonclient has no types


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConfig:
    """A ModelConfig as its file has it; in the message, a `max_batch_size` of 0 is the same as none."""

    message: Config
    never_batched: bool = False  # max_batch_size: 0


def read_config(directory: Path) -> WrittenConfig:
    """Read a model's ModelConfig, empty if there is none; raise InvalidInput for unsupported settings."""
    file = directory / CONFIG_FILE
    content = b""
    if file.exists():
        try:
            content = read_file(directory.parent, file)
        except OSError as error:
            raise InvalidInput(f"{CONFIG_FILE} of model '{directory.name}' cannot be read: {error}") from error
    config = parse_config(content, directory.name)
    _require_servable(config, directory.name)
    return WrittenConfig(message=config, never_batched=_ZERO.search(content) is not None)


def parse_config(content: bytes, name: str) -> Config:
    """Parse a ModelConfig; raise InvalidInput."""
    try:
        return text_format.Parse(content.decode("utf-8-sig"), model_config_pb2.ModelConfig())
    except (ValueError, text_format.ParseError) as error:  # ValueError: not UTF-8, or a number out of range
        raise InvalidInput(f"{CONFIG_FILE} of model '{name}' cannot be read: {error}") from error


def _require_servable(config: Config, name: str) -> None:
    if config.name not in ("", name):
        raise InvalidInput(
            f"unexpected directory name '{name}' for model '{config.name}', directory name must equal model name"
        )
    if config.backend not in ("", BACKEND) or config.platform not in ("", PLATFORM):
        raise InvalidInput(
            f"backend is {config.backend!r} and platform is {config.platform!r} for {name}; "
            f"they must be {BACKEND!r} and {PLATFORM!r}"
        )
    if config.max_batch_size < 0:
        raise InvalidInput(f"'max_batch_size' must be non-negative value for {name}")
    _reject(config, _UNSUPPORTED, name)
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for tensor in tensors:
            _reject(tensor, _UNSUPPORTED_IN_TENSORS, name)
            _require_described(tensor, kind, name)
    for group in config.instance_group:
        _reject(group, _UNSUPPORTED_IN_GROUPS, name)
    _require_batching(config, name)
    _require_execution(config, name)


def _require_described(tensor: Any, kind: str, name: str) -> None:
    """Raise InvalidInput, in Triton's words, for an input or output without a name, type or possible size."""
    subject = f"{CONFIG_FILE} of model '{name}': model {kind}"
    if not tensor.name:
        raise InvalidInput(f"{subject} must specify 'name'")
    if tensor.data_type == model_config_pb2.DataType.TYPE_INVALID:
        raise InvalidInput(f"{subject} '{tensor.name}' must specify 'data_type'")
    if any(size < 1 and size != -1 for size in tensor.dims):
        raise InvalidInput(
            f"{subject} '{tensor.name}' dimension must be integer >= 1, or -1 to indicate a variable-size dimension"
        )


def _require_execution(config: Config, name: str) -> None:
    """Raise InvalidInput for settings of the execution that would be ignored."""
    _reject(config.optimization, _UNSUPPORTED_IN_OPTIMIZATION, name)
    accelerators = config.optimization.execution_accelerators
    _reject(accelerators, ("cpu_execution_accelerator",), name)
    for accelerator in accelerators.gpu_execution_accelerator:
        _reject(accelerator, ("parameters",), name)
    lacking = [key for key in config.parameters if _UNSUPPORTED_PARAMETERS.fullmatch(key)]
    for ignored, word in (
        (config.response_cache.enable, "response_cache { enable: true }"),
        (config.model_transaction_policy.decoupled, "model_transaction_policy { decoupled: true }"),
        (bool(lacking), f"the parameter {min(lacking, default='')}"),
    ):
        if ignored:
            raise InvalidInput(f"{CONFIG_FILE} of model '{name}' sets {word}, which this server lacks")


def _reject(message: Any, fields: Sequence[str], name: str) -> None:
    for descriptor, _ in message.ListFields():
        if descriptor.name in fields:
            raise InvalidInput(f"{CONFIG_FILE} of model '{name}' sets {descriptor.name}, which this server lacks")


def _require_batching(config: Config, name: str) -> None:
    batching = config.dynamic_batching
    _reject(batching, _UNSUPPORTED_IN_BATCHING, name)
    if any(size <= 0 for size in batching.preferred_batch_size):
        raise InvalidInput(f"dynamic batching preferred size must be positive for {name}")
    if any(size > config.max_batch_size for size in batching.preferred_batch_size):
        raise InvalidInput(f"dynamic batching preferred size must be <= max batch size for {name}")
    if batching.default_queue_policy.timeout_action == model_config_pb2.ModelQueuePolicy.DELAY:
        raise InvalidInput(f"timeout_action is DELAY for {name}; it must be REJECT")


def complete_config(
    config: Config,
    name: str,
    inputs: Sequence[TensorMetadata],
    outputs: Sequence[TensorMetadata],
    *,
    batching: bool = True,
) -> Config:
    """Complete a config from the model's ONNX inputs and outputs, as Triton does.

    `batching`: whether requests may be batched if the config does not say so. Raises InvalidInput if they do not fit
    each other.
    """
    completed = model_config_pb2.ModelConfig()
    completed.CopyFrom(config)
    completed.name, completed.backend, completed.platform = name, BACKEND, PLATFORM
    completed.default_model_filename = config.default_model_filename or MODEL_FILE
    if not completed.HasField("version_policy"):
        completed.version_policy.latest.num_versions = 1
    if not (config.input and config.output) and (batching or config.max_batch_size > 0):
        _complete_batching(completed, [*inputs, *outputs])
    _complete_tensors(completed.input, inputs, batched=completed.max_batch_size > 0)
    _complete_tensors(completed.output, outputs, batched=completed.max_batch_size > 0)
    _require_fit(completed, inputs, outputs)
    return completed


def _complete_batching(completed: Config, tensors: Sequence[TensorMetadata]) -> None:
    if not all(each.shape and each.shape[0] == -1 for each in tensors):
        if completed.max_batch_size > 0:
            raise InvalidInput(
                f"autofill failed for model '{completed.name}': model does not support batching while non-zero "
                "max_batch_size is specified"
            )
        return
    completed.max_batch_size = completed.max_batch_size or DEFAULT_MAX_BATCH_SIZE
    if completed.max_batch_size > 1 and not completed.HasField("dynamic_batching"):
        completed.dynamic_batching.SetInParent()


def _complete_tensors(written: Any, tensors: Sequence[TensorMetadata], *, batched: bool) -> None:
    if written:
        return
    for each in tensors:
        dims = each.shape[1:] if batched else each.shape
        written.add(name=each.name, data_type=to_config_type(each.datatype), dims=dims)


def _require_fit(completed: Config, inputs: Sequence[TensorMetadata], outputs: Sequence[TensorMetadata]) -> None:
    if len(completed.input) != len(inputs):
        raise InvalidInput(
            f"unable to load model '{completed.name}', configuration expects {len(completed.input)} inputs, "
            f"model provides {len(inputs)}"
        )
    batched = completed.max_batch_size > 0
    for kind, written, there in (("input", completed.input, inputs), ("output", completed.output, outputs)):
        known = {each.name: each for each in there}
        for tensor in written:
            if tensor.name not in known:
                raise InvalidInput(
                    f"unexpected inference {kind} '{tensor.name}', allowed {kind}s are: {', '.join(known)}"
                )
            _require_same(completed.name, tensor_metadata(tensor, batched=batched), known[tensor.name])
            first = (*known[tensor.name].shape, -1)[0]
            if batched and first != -1 and (first, completed.max_batch_size) != (1, 1):
                raise InvalidInput(
                    f"unable to load model '{completed.name}', tensor '{tensor.name}': the model's first dimension is "
                    f"{first}, so it cannot be batched; max_batch_size is {completed.max_batch_size}, and must be 0"
                )


def _require_same(name: str, written: TensorMetadata, there: TensorMetadata) -> None:
    fits = len(written.shape) == len(there.shape) and all(
        -1 in (one, other) or one == other for one, other in zip(written.shape, there.shape, strict=True)
    )
    if written.datatype != there.datatype or not fits:
        raise InvalidInput(
            f"unable to load model '{name}', tensor '{there.name}': the model has {there.datatype} "
            f"{format_shape(there.shape)}, the configuration {written.datatype} {format_shape(written.shape)} "
            "(with a batch dimension if max_batch_size > 0)"
        )


def tensor_metadata(tensor: Any, *, batched: bool) -> TensorMetadata:
    """Convert a ModelInput or ModelOutput to what clients see."""
    datatype = from_config_type(model_config_pb2.DataType.Name(tensor.data_type))
    return TensorMetadata(name=tensor.name, datatype=datatype, shape=((-1,) if batched else ()) + tuple(tensor.dims))
