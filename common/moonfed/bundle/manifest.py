"""The manifest: everything that devices and the coordinator know about a bundle, as canonical JSON.

The coordinator reads no other file of a bundle. The manifest holds the digests of all others, so trust in its sha256
is trust in the bundle.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from moonfed.blobs.schema import FLOAT32, TensorSpec
from moonfed.blobs.store import DIGEST, BlobRef
from moonfed.bundle.target import TargetSpec, read_text
from moonfed.errors import InvalidInput
from moonfed.format_version import known_fields, refuse_unknown_fields, require_readable
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import Selection
from moonfed.server_rules import DEFAULT_RULE, MEAN
from moonfed.validate import require, require_line, require_whole
from moonfed.version import GRAPH_PLAN_INTERFACE, PLAN_INTERFACE

if TYPE_CHECKING:
    from moonfed.data.table_spec import TableSpec

FORMAT = "moonfed-bundle/4"
RANKS = {"image": 3, "features": 1, "series": 2, "tokens": 1}  # of a sample, by kind
PADDING = 0  # position in a vocabulary
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)  # of a metric, or an optimiser
_OPERATOR = re.compile(r"\w{1,100}::\w{1,100}", re.ASCII)
_RELEASE = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}", re.ASCII)  # of torch
MANIFEST_FILE = "manifest.json"
MANIFEST_BYTES = 16 << 20  # at most
PLAN_FILE = "plan.pt"
GRAPH_PLAN_FILE = "plan.json"  # the same steps as graphs of operators
PLAN_NAMES = {PLAN_INTERFACE: PLAN_FILE, GRAPH_PLAN_INTERFACE: GRAPH_PLAN_FILE}  # of those that this moonfed runs
GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "initial.safetensors"
FROZEN_FILE = "frozen.safetensors"  # the values of frozen tensors, if there are any
PERSONAL_FILE = "personal.safetensors"  # the initial values of personal tensors, if there are any
INPUT_PARAMETER = "moonfed.input"  # an InputSpec in a served model's configuration, and in an ONNX file's metadata
OWN_FILE = "own.safetensors"  # next to a released model: a device's own values of the personal tensors
PERSONAL_PARAMETER = "moonfed.personal"  # in an ONNX file's metadata: the tensors of which each device has its own
PERSONAL_ONLY = "the model has personal tensors, which each device fills in with its own; it runs on devices only"
FILES = (PLAN_FILE, GRAPH_FILE, WEIGHTS_FILE)  # of every bundle

# Files exchanged or stored besides the model, by role. Devices treat roles as opaque.
MODEL = "model"  # down and up: the weights
VARIATE = "variate"  # down: SCAFFOLD's c
VARIATE_CHANGE = "variate_change"  # up: c_i⁺ − c_i
DEVICE_VARIATE = "device_variate"  # kept on the device: c_i
PERSONAL = "personal"  # kept on the device: the tensors of its own part of the model
PROTOTYPES = "prototypes"  # down: `prototypes` [C, D], and `present` [C], 1 for each class that has one
# Up: `means` [C, D] of a device's representations, and `mask` [C], 1 for each class that has one.
CLASS_MEANS = "class_means"
PERSONAL_MODEL = "personal."  # before the tensors' names, if they are a whole model besides the shared one
DOWNLINK = (VARIATE, PROTOTYPES)
UPLINK = (VARIATE_CHANGE, CLASS_MEANS)
DEVICE_STATE = (DEVICE_VARIATE, PERSONAL)

Roles = Mapping[str, tuple[TensorSpec, ...]]  # the tensors of each role's file
SGD = "sgd"  # the optimiser of a plan that names none
CONSTANT = "constant"  # the learning rate over the steps of a round, of a plan that names no schedule
Schedule = tuple[tuple[int, float], ...]  # (round, value): linear between these points, constant outside


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One raw sample, as it goes into the plan and into the ONNX graph, without the batch dimension.

    `image`: uint8, (height, width, channels). `features`: float32, (width,). `series`: float32, (length, channels).
    `tokens`: int64, (length,), positions in the vocabulary, whose first entry is padding.
    """

    kind: Literal["image", "features", "series", "tokens"]
    shape: tuple[int, ...]
    table: TableSpec | None = None  # the columns that the features come from, where samples are rows of tables
    vocabulary: tuple[str, ...] = ()  # of tokens

    def __post_init__(self) -> None:
        require(self.kind in RANKS, "input.kind", self.kind, f"one of {', '.join(RANKS)}")
        rank = RANKS[self.kind]
        good = len(self.shape) == rank and all(side >= 1 for side in self.shape)
        require(good, "input.shape", self.shape, f"{rank} positive numbers for input.kind {self.kind!r}")
        least = 2 if self.kind == "tokens" else 0
        good = len(self.vocabulary) >= least and (least > 0 or not self.vocabulary)
        require(good, "input.vocabulary", self.vocabulary[:8], "padding and one token at least, for tokens only")
        good = len(set(self.vocabulary)) == len(self.vocabulary)
        require(good, "input.vocabulary", self.vocabulary[:8], "tokens that all differ")
        if self.table is not None:
            require(self.kind in ("features", "series"), "input.kind", self.kind, "'features' or 'series' for tables")
            width = self.table.width
            shape = f"({'N, ' if self.kind == 'series' else ''}{width},), the width of the columns"
            require(self.shape[-1] == width, "input.shape", self.shape, shape)
            if self.kind == "features":
                self.table.require_others()

    @property
    def dtype(self) -> str:
        """The raw samples' dtype, as numpy names it."""
        return {"image": "uint8", "tokens": "int64"}.get(self.kind, "float32")

    def describe(self) -> str:
        """Return the samples in words, such as "images of 32x32x3"."""
        if self.kind == "image":
            return f"images of {'x'.join(map(str, self.shape))}"
        if self.kind == "series" and self.table:
            return f"windows of {self.shape[0]} rows of tables of {len(self.table.columns)} columns"
        if self.kind == "series":
            return f"series of {self.shape[0]} steps and {self.shape[1]} channels"
        if self.kind == "tokens":
            return f"{self.shape[0]} tokens of a vocabulary of {len(self.vocabulary)}"
        return f"tables of {len(self.table.columns)} columns" if self.table else f"{self.shape[0]} features"

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        document: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape)}
        if self.vocabulary:
            document["vocabulary"] = list(self.vocabulary)
        return document | ({"table": self.table.to_document()} if self.table else {})

    def to_text(self) -> str:
        """Return the JSON that model files and configurations hold."""
        return json.dumps(self.to_document(), ensure_ascii=False)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> InputSpec:
        """Read what `to_document` returned; raise KeyError, TypeError, AttributeError or InvalidInput."""
        kind, shape = document["kind"], _shape(document["shape"])
        if "table" not in document:
            return cls(kind=kind, shape=shape, vocabulary=tuple(map(str, document.get("vocabulary", ()))))
        from moonfed.data.table_spec import TableSpec  # most devices have no tables, and their agents are to be small

        return cls(kind=kind, shape=shape, table=TableSpec.from_document(document["table"]))


def required_files(*, frozen: Sequence[object], personal: Sequence[object]) -> tuple[str, ...]:
    """Return the names of a bundle's files, besides the manifest, from its frozen and its personal tensors."""
    return (*FILES, *([FROZEN_FILE] if frozen else []), *([PERSONAL_FILE] if personal else []))


def plan_files(manifest: Manifest) -> dict[str, str]:
    """Return the names of the files that hold the plan, by its interface."""
    graphs = {GRAPH_PLAN_INTERFACE: GRAPH_PLAN_FILE} if GRAPH_PLAN_FILE in manifest.files else {}
    return {manifest.plan.interface: PLAN_FILE, **graphs}


def graph_name(name: str) -> str:
    """Return the name in the ONNX graph of a tensor, which may be one of a personal model."""
    return name.removeprefix(PERSONAL_MODEL)


def parts_of(manifest: Manifest) -> dict[str, BlobRef]:
    """Return the files of frozen and of personal tensors, by name."""
    return {name: manifest.files[name] for name in (FROZEN_FILE, PERSONAL_FILE) if name in manifest.files}


def output_shape(sample: InputSpec, target: TargetSpec) -> tuple[int, ...]:
    """Return the shape of a model's output for one sample, as its plan and its ONNX graph return it."""
    count = len(target.names)
    return {
        "mask": (count, *target.shape),
        "values": target.shape,
        "none": (),
        "next": (*sample.shape, len(sample.vocabulary)),
    }.get(target.kind, (count,))


def read_input(text: str, where: str) -> InputSpec:
    """Read `InputSpec.to_text`; raise InvalidInput for text that is not moonfed's."""
    return read_text(InputSpec.from_document, text, where, "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """The plan's requirements, known before it is loaded."""

    interface: str = PLAN_INTERFACE
    minimum_torch: str  # of the TorchScript plan, such as "2.4"
    built_with_torch: str
    minimum_samples: int = 1  # 2 where BatchNorm cannot normalise a batch of one
    activation_bytes: int  # per sample, kept by a float32 step for the backward pass
    frozen_encoders: int = 0  # copies of encoder and projection head in the plan besides the model
    representation: int = 0  # its width, which methods that keep representations need memory for; 0: none
    frozen_width: int = 0  # values of a sample after the frozen first layers, kept for a round; 0: none are first
    optimiser: str = SGD  # its settings are hyperparameters
    step_schedule: str = CONSTANT  # of the learning rate over a round's steps; the plan implements it
    operators: tuple[str, ...] = ()  # torch's that it calls, without overloads: `aten::add`; empty: not known
    graph_minimum_torch: str = ""  # of the graph plan; empty: there is none
    untraceable: str = ""  # why there is no graph plan, as a clause; empty: there is one

    def __post_init__(self) -> None:
        for name, least in (
            ("minimum_samples", 1),
            ("activation_bytes", 0),
            ("frozen_encoders", 0),
            ("representation", 0),
            ("frozen_width", 0),
        ):
            require_whole(f"plan.{name}", getattr(self, name), least)
        for name in ("minimum_torch", *(["graph_minimum_torch"] if self.graph_minimum_torch else [])):
            value = getattr(self, name)
            require(bool(_RELEASE.fullmatch(value)), f"plan.{name}", value[:100], "a release such as 2.4")
        is_name = bool(_NAME.fullmatch(self.optimiser))
        require(is_name, "plan.optimiser", self.optimiser[:100], "a name such as adam")
        require_line("plan.step_schedule", self.step_schedule)
        if self.untraceable:
            require_line("plan.untraceable", self.untraceable)
        for name in self.operators:
            require(bool(_OPERATOR.fullmatch(name)), "plan.operators", name[:100], "names such as aten::add")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measure of how good a model is."""

    name: str  # such as accuracy
    maximise: bool  # whether more is better
    share: bool  # whether it is from 0 to 1, so that differences are points
    unit: str = ""  # of it and of `mae`, such as EUR; empty: it has none, or values have several

    def __post_init__(self) -> None:
        good = bool(_NAME.fullmatch(self.name))
        require(good, "metric.name", self.name[:100], "lower-case letters, digits and _, the first a letter")
        require(self.unit == "" or self.unit.isprintable(), "metric.unit", self.unit, "printable")
        for name in ("maximise", "share"):
            kind = type(getattr(self, name))
            require(kind is bool, f"metric.{name}", kind.__name__, "true or false")

    def unit_of(self, name: str) -> str:
        """Return the unit of a recorded metric, such as `rmse`, `mae@night` or `holdout_rmse`."""
        own = name.partition("@")[0].removeprefix("holdout_")
        return self.unit if own in (self.name, "mae") else ""

    @property
    def label(self) -> str:
        """The name in words, such as "mean iou"."""
        return self.name.replace("_", " ")

    def require_possible(self, field: str, value: float) -> None:
        """Raise InvalidInput naming the field of a value that the metric cannot have."""
        allowed = "a number from 0 to 1" if self.share else "a finite number"
        require(math.isfinite(value) and (not self.share or 0 <= value <= 1), field, value, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """The origin of initial weights that are not random."""

    source: str  # in words: "resnet18.pth", "torchvision resnet18 IMAGENET1K_V1"
    sha256: str  # of the source's file
    tensors: int  # of the model that start from it
    licence: str = ""  # empty: not stated
    url: str = ""

    def __post_init__(self) -> None:
        require(bool(self.source), "pretrained.source", self.source, "a name that is not empty")
        for key in ("source", "licence", "url"):
            require_line(f"pretrained.{key}", getattr(self, key))
        require(bool(DIGEST.fullmatch(self.sha256)), "pretrained.sha256", self.sha256[:100], "64 hexadecimal digits")
        require_whole("pretrained.tensors", self.tensors, 1)

    def describe(self, of: int) -> str:
        """Return the origin in words; `of`: the number of the model's tensors."""
        licence = self.licence or "licence not stated"
        return f"{self.source} (sha256 {self.sha256[:12]}), {licence}; {self.tensors} of {of} tensors"


ACCURACY = Metric(name="accuracy", maximise=True, share=True)
CLASSIFICATION = Selection("classification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One bundle: a model, a learning method, and the files that hold them."""

    name: str
    model: str
    method: str
    previous_models: int  # k of MOON: previous local models that a round uses; 0 for most methods
    training: TrainingSpec  # its hyperparameters are the first round's, unless `schedules` overrides them
    input: InputSpec
    target: TargetSpec
    tensors: tuple[TensorSpec, ...]  # the shared ones: they travel in each round, and are aggregated
    plan: PlanSpec
    files: Mapping[str, BlobRef]
    format: str = FORMAT
    task: Selection = CLASSIFICATION  # of `moonfed.tasks`; the plan implements it
    metric: Metric = ACCURACY  # by which global models are compared
    server_rule: Selection = DEFAULT_RULE  # for the coordinator: `moonfed.server_rules`
    prototype_devices: int = 0  # devices whose class means form a prototype, drawn for each round; 0: all
    # Of hyperparameters that change from round to round.
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    downlink: Roles = field(default_factory=dict)  # global state that a round starts from, besides the model
    uplink: Roles = field(default_factory=dict)  # what an update contains besides the model
    device_state: Roles = field(default_factory=dict)  # state that a device keeps from a round that counted its update
    augmentation: str = "none"  # its name, for people; the plan implements it
    pretrained: Pretrained | None = None  # None: the initial weights are random
    frozen: tuple[TensorSpec, ...] = ()  # tensors that are never trained; devices fetch them once

    def __post_init__(self) -> None:
        require(self.format == FORMAT, "format", self.format, repr(FORMAT))
        require(bool(self.name), "name", self.name, "a name that is not empty")
        require(bool(self.augmentation), "augmentation", self.augmentation, "a name; 'none' for none")
        for key in ("name", "model", "method", "augmentation"):
            require_line(key, getattr(self, key))
        require_whole("previous_models", self.previous_models, 0)
        require_whole("prototype_devices", self.prototype_devices, 0)
        _check_tensors("tensors", self.tensors)
        _check_tensors("frozen", self.frozen)
        names = [spec.name for part in (self.tensors, self.frozen, self.personal) for spec in part]
        require(len(set(names)) == len(names), "frozen", names, "tensors that are in one part of the model only")
        for field_, roles, known in (
            ("downlink", self.downlink, DOWNLINK),
            ("uplink", self.uplink, UPLINK),
            ("device_state", self.device_state, DEVICE_STATE),
        ):
            for role, specs in roles.items():
                require(role in known, f"role of {field_}", role, f"one of {', '.join(known)}")
                _check_tensors(f"{field_} {role!r}", specs)
        for key, points in self.schedules.items():
            rounds = [round_ for round_, _ in points]
            good = bool(points) and rounds == sorted(set(rounds)) and all(math.isfinite(value) for _, value in points)
            require(good, f"schedule of {key!r}", points, "(round, finite value) in order of the rounds, each once")
            require(key in self.training.hyperparameters, "name of a schedule", key, "a hyperparameter's")
        files = sorted(required_files(frozen=self.frozen, personal=self.personal))
        found = sorted(set(self.files) - {GRAPH_PLAN_FILE})
        require(found == files, "files", sorted(self.files), f"{files}, and {GRAPH_PLAN_FILE!r} if there are graphs")
        good = bool(self.plan.graph_minimum_torch) == (GRAPH_PLAN_FILE in self.files)
        allowed = f"a release of torch if, and only if, there is {GRAPH_PLAN_FILE!r}"
        require(good, "plan.graph_minimum_torch", self.plan.graph_minimum_torch, allowed)

    def training_at(self, round_: int) -> TrainingSpec:
        """Return the training of a round, counted from 1, with its scheduled hyperparameters."""
        return self.training.with_hyperparameters({key: _at(points, round_) for key, points in self.schedules.items()})

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, labels or values; empty where a model reproduces its input."""
        return self.target.names

    @property
    def personal(self) -> tuple[TensorSpec, ...]:
        """The tensors that each device keeps to itself."""
        return self.device_state.get(PERSONAL, ())

    @property
    def whole(self) -> tuple[TensorSpec, ...]:
        """All tensors of one model: the shared, the frozen, and the personal ones unless they are a second model."""
        own = (spec for spec in self.personal if not spec.name.startswith(PERSONAL_MODEL))
        return (*self.tensors, *self.frozen, *own)

    @property
    def parameters(self) -> tuple[TensorSpec, ...]:
        """The shared tensors that are trained."""
        return tuple(spec for spec in self.tensors if spec.kind == "parameter")

    def to_bytes(self) -> bytes:
        """Return the canonical form: sorted keys, no white space, UTF-8. Its sha256 names the bundle."""
        document = {
            "format": self.format,
            "name": self.name,
            "model": self.model,
            "method": self.method,
            "previous_models": self.previous_models,
            "training": self.training.to_document(),
            "server_rule": self.server_rule.to_document(),
            "prototype_devices": self.prototype_devices,
            "schedules": {key: [[at, float(value)] for at, value in points] for key, points in self.schedules.items()},
            "downlink": _roles_document(self.downlink),
            "uplink": _roles_document(self.uplink),
            "device_state": _roles_document(self.device_state),
            "augmentation": self.augmentation,
            "input": self.input.to_document(),
            "target": self.target.to_document(),
            "task": self.task.to_document(),
            "metric": asdict(self.metric),
            "tensors": tensors_document(self.tensors),
            "plan": {
                "interface": self.plan.interface,
                "minimum_torch": self.plan.minimum_torch,
                "built_with_torch": self.plan.built_with_torch,
                "minimum_samples": self.plan.minimum_samples,
                "activation_bytes": self.plan.activation_bytes,
                "frozen_encoders": self.plan.frozen_encoders,
                "representation": self.plan.representation,
                **({"frozen_width": self.plan.frozen_width} if self.plan.frozen_width else {}),
                **({"optimiser": self.plan.optimiser} if self.plan.optimiser != SGD else {}),
                **({"step_schedule": self.plan.step_schedule} if self.plan.step_schedule != CONSTANT else {}),
                **({"operators": list(self.plan.operators)} if self.plan.operators else {}),
                **({"graph_minimum_torch": self.plan.graph_minimum_torch} if self.plan.graph_minimum_torch else {}),
                **({"untraceable": self.plan.untraceable} if self.plan.untraceable else {}),
            },
            "files": {name: {"sha256": ref.sha256, "size": ref.size} for name, ref in self.files.items()},
            **({"pretrained": asdict(self.pretrained)} if self.pretrained else {}),
            **({"frozen": tensors_document(self.frozen)} if self.frozen else {}),
        }
        return _canonical(document)

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Read and check a manifest; InvalidInput names a wrong field, VersionMismatch an unknown one."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("manifest.json is not JSON") from error
        if not isinstance(document, dict):
            raise InvalidInput("manifest.json must hold a JSON object")
        require_readable(MANIFEST_FILE, document.get("format"), (FORMAT,))
        try:
            manifest = _from_document(document)
            canonical = manifest.to_bytes()
        except KeyError as error:
            raise InvalidInput(f"manifest.json lacks the field {error.args[0]!r}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidInput(f"manifest.json has a field of the wrong type: {error}") from error
        if canonical != content:
            refuse_unknown_fields(MANIFEST_FILE, document, json.loads(canonical))
            raise InvalidInput("manifest.json is not in canonical form")
        return manifest


def _from_document(document: dict[str, Any]) -> Manifest:
    return Manifest(
        name=str(document["name"]),
        model=str(document["model"]),
        method=str(document["method"]),
        previous_models=int(document["previous_models"]),
        training=TrainingSpec.from_document(document["training"]),
        server_rule=Selection.from_document(document["server_rule"], MEAN),
        prototype_devices=int(document["prototype_devices"]),
        schedules={
            str(key): tuple((int(at), float(value)) for at, value in points)
            for key, points in document["schedules"].items()
        },
        downlink=_roles(document["downlink"]),
        uplink=_roles(document["uplink"]),
        device_state=_roles(document["device_state"]),
        augmentation=str(document["augmentation"]),
        input=InputSpec.from_document(document["input"]),
        target=TargetSpec.from_document(document["target"]),
        task=Selection.from_document(document["task"], CLASSIFICATION.name),
        metric=Metric(**known_fields(Metric, document["metric"])),
        tensors=read_tensor_specs(document["tensors"]),
        plan=PlanSpec(
            interface=str(document["plan"]["interface"]),
            minimum_torch=str(document["plan"]["minimum_torch"]),
            built_with_torch=str(document["plan"]["built_with_torch"]),
            minimum_samples=int(document["plan"]["minimum_samples"]),
            activation_bytes=int(document["plan"]["activation_bytes"]),
            frozen_encoders=int(document["plan"]["frozen_encoders"]),
            representation=int(document["plan"]["representation"]),
            frozen_width=int(document["plan"].get("frozen_width", 0)),
            optimiser=str(document["plan"].get("optimiser", SGD)),
            step_schedule=str(document["plan"].get("step_schedule", CONSTANT)),
            operators=tuple(str(name) for name in document["plan"].get("operators", ())),
            graph_minimum_torch=str(document["plan"].get("graph_minimum_torch", "")),
            untraceable=str(document["plan"].get("untraceable", "")),
        ),
        files={str(name): BlobRef.from_document(ref) for name, ref in document["files"].items()},
        pretrained=Pretrained(**known_fields(Pretrained, document["pretrained"])) if "pretrained" in document else None,
        frozen=read_tensor_specs(document.get("frozen", ())),
    )


def read_tensor_specs(document: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Read what `tensors_document` returned; raise KeyError or TypeError."""
    return tuple(
        TensorSpec(name=str(t["name"]), shape=_shape(t["shape"]), kind=t["kind"], dtype=str(t["dtype"]))
        for t in document
    )


def _roles(document: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, tuple[TensorSpec, ...]]:
    return {str(role): read_tensor_specs(specs) for role, specs in document.items()}


def tensors_document(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Return JSON values."""
    return [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "kind": t.kind} for t in specs]


def _roles_document(roles: Roles) -> dict[str, list[dict[str, Any]]]:
    return {role: tensors_document(specs) for role, specs in roles.items()}


def _at(points: Schedule, round_: int) -> float:
    """Return a schedule's value: linear between its points, constant outside them."""
    if round_ <= points[0][0]:
        return points[0][1]
    for (left, start), (right, end) in pairwise(points):
        if round_ <= right:
            return start + (end - start) * (round_ - left) / (right - left)
    return points[-1][1]


def _shape(sides: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(side) for side in sides)


def _check_tensors(field_: str, specs: Sequence[TensorSpec]) -> None:
    names = [spec.name for spec in specs]
    for name in names:
        require_line(f"name of a tensor of {field_}", name)
    require(names == sorted(set(names)), field_, names, "tensors in order of their names, each once")
    for spec in specs:
        require(spec.dtype == FLOAT32, f"dtype of tensor {spec.name!r}", spec.dtype, repr(FLOAT32))
        require(spec.kind in ("parameter", "statistic"), f"kind of tensor {spec.name!r}", spec.kind,
               "'parameter' or 'statistic'")  # fmt: skip
        require(all(side >= 0 for side in spec.shape), f"shape of tensor {spec.name!r}", spec.shape, "sizes from 0")


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
