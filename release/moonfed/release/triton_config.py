"""The config.pbtxt of a released model: generated from its graph, and an existing one checked against it.

It follows Triton's model_config.proto, in tritonclient's messages. Omitted fields have Triton's defaults:
timeout_action REJECT, an instance kind chosen by the hardware, no wait for a fuller batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.bundle.manifest import INPUT_PARAMETER, read_input
from moonfed.bundle.target import OUTPUTS, TARGET_PARAMETER, THRESHOLD_PARAMETER, read_target
from moonfed.errors import InvalidInput
from moonfed.models.repository import LABELS_FILE, MODEL_FILE
from moonfed.plan.inspection.graph import require_self_contained

if TYPE_CHECKING:  # roll-back must work where only the server is installed
    import onnx

BACKEND, PLATFORM = "onnxruntime", "onnxruntime_onnx"
QUEUE_SIZE = 1024  # queued requests; further ones are rejected
QUEUE_TIMEOUT_US = 5_000_000  # after which a queued request is rejected
ANY = -1  # a dimension of any length
_TRITON_NAMES = {"FLOAT": "FP32", "FLOAT16": "FP16", "DOUBLE": "FP64", "BFLOAT16": "BF16"}  # by ONNX's name


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTensor:
    """An input or output of a graph."""

    name: str
    data_type: int  # of model_config_pb2.DataType
    shape: tuple[int, ...]  # -1: any length; the batch dimension included

    @property
    def type_name(self) -> str:
        """Triton's name of the type, such as TYPE_FP32."""
        return _type_name(self.data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInterface:
    """The inputs and outputs of a graph."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)  # what clients cannot tell from the tensors

    @property
    def batchable(self) -> bool:
        """True if the first dimension of every tensor is free, so that requests can share a batch."""
        return all(tensor.shape[:1] == (ANY,) for tensor in (*self.inputs, *self.outputs))


def read_interface(graph: bytes, where: str) -> GraphInterface:
    """Read the interface of an ONNX file; raise InvalidInput for a damaged file or a type that Triton lacks."""
    import onnx

    try:
        require_self_contained(graph, where)
        proto = onnx.ModelProto.FromString(graph)
        onnx.checker.check_model(proto)
    except InvalidInput:
        raise
    except Exception as error:  # protobuf's and onnx's errors share no base class
        raise InvalidInput(f"{where} is not an ONNX model, or is damaged") from error
    initialisers = {initialiser.name for initialiser in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in initialisers]
    return GraphInterface(
        inputs=tuple(_tensor(value, where) for value in inputs),
        outputs=tuple(_tensor(value, where) for value in proto.graph.output),
        parameters=_parameters({entry.key: entry.value for entry in proto.metadata_props}, where),
    )


def new_config(
    name: str, interface: GraphInterface, *, labelled: bool, max_batch_size: int, instances: int
) -> model_config_pb2.ModelConfig:
    """Generate a graph's configuration: dynamic batching, a bounded queue, a warm-up, the newest version.

    `labelled`: whether labels.txt names the classes. A graph whose batch dimension is fixed is served without batching.
    """
    batchable = interface.batchable
    config = model_config_pb2.ModelConfig(name=name, backend=BACKEND, max_batch_size=max_batch_size * batchable)
    config.version_policy.latest.num_versions = 1
    for key, value in interface.parameters.items():
        config.parameters[key].string_value = value
    for tensor in interface.inputs:
        config.input.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.shape[batchable:])
    for tensor in interface.outputs:
        output = config.output.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.shape[batchable:])
        if labelled and tensor.name in OUTPUTS:
            output.label_filename = LABELS_FILE
    config.instance_group.add(count=instances)
    if batchable:
        policy = config.dynamic_batching.default_queue_policy
        policy.max_queue_size, policy.default_timeout_microseconds = QUEUE_SIZE, QUEUE_TIMEOUT_US
        policy.allow_timeout_override = True  # a request may shorten it
    for size in sorted({1, max_batch_size} if batchable else {1}):
        _add_warmup(config, size)
    return config


def to_text(config: model_config_pb2.ModelConfig) -> str:
    """Format a configuration as config.pbtxt."""
    return text_format.MessageToString(config, as_utf8=True)


def from_text(text: str, where: str) -> model_config_pb2.ModelConfig:
    """Parse a config.pbtxt; raise InvalidInput naming the line that is wrong."""
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise InvalidInput(f"{where} is not a model configuration: {error}") from error


def labels_text(classes: Sequence[str]) -> str:
    """Format one class name per line, as Triton reads labels; raise InvalidInput for a name of several lines."""
    for name in classes:
        if len(name.splitlines()) != 1:
            raise InvalidInput(f"class {name!r} cannot be a label; a label is one line", field="class", value=name)
    return "".join(f"{name}\n" for name in classes)


def select_versions(config: model_config_pb2.ModelConfig, versions: Sequence[int]) -> list[int]:
    """Return the versions that the version policy selects; without a policy, the newest."""
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return list(versions)
    if choice == "specific":
        return [version for version in versions if version in policy.specific.versions]
    return list(versions[-max(policy.latest.num_versions, 1) :])


def require_fit(config: model_config_pb2.ModelConfig, name: str, interface: GraphInterface, where: str) -> None:
    """Raise InvalidInput if an existing configuration cannot serve a graph with this interface."""
    if config.name not in ("", name):
        raise InvalidInput(
            f"name in {where} is {config.name!r}; it must be its directory's, {name!r}", field="name", value=config.name
        )
    if BACKEND not in (config.backend, config.platform.removesuffix("_onnx")):
        raise InvalidInput(f"backend in {where} is {config.backend or config.platform!r}; it must be {BACKEND!r}")
    if config.default_model_filename not in ("", MODEL_FILE) or config.cc_model_filenames:
        raise InvalidInput(f"{where} names another model file than {MODEL_FILE}, which moonfed writes")
    if config.max_batch_size > 0 and not interface.batchable:
        raise InvalidInput(
            f"max_batch_size in {where} is {config.max_batch_size}; "
            "the model's first dimensions are fixed, so it must be 0",
            field="max_batch_size",
            value=config.max_batch_size,
        )
    for key, field_ in ((INPUT_PARAMETER, "columns"), (TARGET_PARAMETER, "targets")):
        described = config.parameters[key].string_value if key in config.parameters else ""
        if described and described != interface.parameters.get(key):
            raise InvalidInput(
                f"{where} describes other {field_} than the model's; choose another --name", field=field_
            )
    batched = config.max_batch_size > 0
    missing = {tensor.name for tensor in interface.inputs} - {tensor.name for tensor in config.input}
    if config.input and missing:
        raise InvalidInput(f"{where} lacks the model's input {min(missing)!r}")
    for kind, given, known in (("input", config.input, interface.inputs), ("output", config.output, interface.outputs)):
        for tensor in given:
            _require_same(kind, tensor, known, batched=batched, where=where)


def _require_same(
    kind: str,
    given: model_config_pb2.ModelInput | model_config_pb2.ModelOutput,
    known: Sequence[GraphTensor],
    *,
    batched: bool,
    where: str,
) -> None:
    model = next((tensor for tensor in known if tensor.name == given.name), None)
    if model is None:
        raise InvalidInput(f"{where} has the {kind} {given.name!r}; the model has {', '.join(t.name for t in known)}")
    if given.data_type != model.data_type:
        raise InvalidInput(
            f"data_type of {kind} {given.name!r} in {where} is {_type_name(given.data_type)}; "
            f"the model's is {_type_name(model.data_type)}"
        )
    dims = tuple(given.reshape.shape if given.HasField("reshape") else given.dims)
    expected = model.shape[1:] if batched else model.shape
    if len(dims) != len(expected) or any(ANY not in (a, b) and a != b for a, b in zip(dims, expected, strict=True)):
        raise InvalidInput(
            f"dims of {kind} {given.name!r} in {where} are {list(dims)}; the model's are {list(expected)}"
        )


def _add_warmup(config: model_config_pb2.ModelConfig, batch_size: int) -> None:
    """Add a warm-up sample of zeros, unless the size of a sample is unknown."""
    if any(ANY in tensor.dims for tensor in config.input):
        return
    sample = config.model_warmup.add(name=f"batch of {batch_size}", batch_size=batch_size)
    for tensor in config.input:
        entry = sample.inputs[tensor.name]
        entry.data_type, entry.zero_data = tensor.data_type, True
        entry.dims.extend(tensor.dims)


def _parameters(metadata: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the descriptions of tables, series and tokens, and of targets that are no classes, with a threshold."""
    found = {}
    if text := metadata.get(INPUT_PARAMETER, ""):
        spec = read_input(text, where)
        if spec.table or spec.kind not in ("image", "features"):
            found[INPUT_PARAMETER] = text
    if text := metadata.get(TARGET_PARAMETER, ""):
        target = read_target(text, where).unscaled
        if target.kind != "class":
            found[TARGET_PARAMETER] = target.to_text()
    if THRESHOLD_PARAMETER in metadata:
        found[THRESHOLD_PARAMETER] = metadata[THRESHOLD_PARAMETER]
    return found


def _tensor(value: onnx.ValueInfoProto, where: str) -> GraphTensor:
    import onnx

    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    data_type = f"TYPE_{_TRITON_NAMES.get(kind, kind)}"
    if not value.type.HasField("tensor_type") or data_type not in model_config_pb2.DataType.keys():  # noqa: SIM118
        raise InvalidInput(f"{value.name!r} of {where} has type {kind}, which cannot be served")
    if not value.type.tensor_type.HasField("shape"):
        raise InvalidInput(f"{value.name!r} of {where} has no shape; a model that is served needs one")
    dims = value.type.tensor_type.shape.dim
    return GraphTensor(
        name=value.name,
        data_type=model_config_pb2.DataType.Value(data_type),
        shape=tuple(dim.dim_value if dim.HasField("dim_value") else ANY for dim in dims),
    )


def _type_name(data_type: int) -> str:
    return str(model_config_pb2.DataType.Name(data_type))
