"""The manifest: everything that devices and the coordinator know of a bundle, in one canonical JSON form.

The coordinator reads nothing else of a bundle. All other files are reached through the digests in it, so whoever
trusts the manifest's sha256 trusts the bundle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from moonfed import PLAN_INTERFACE
from moonfed.blobs import BlobRef
from moonfed.errors import InvalidInput
from moonfed.schema import FLOAT32, TensorSpec

FORMAT = "moonfed-bundle/1"
MANIFEST_FILE = "manifest.json"
PLAN_FILE = "plan.pt"
GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "initial.safetensors"
FILES = (PLAN_FILE, GRAPH_FILE, WEIGHTS_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One raw sample, as it goes into the plan and into the ONNX graph, without the batch dimension.

    `image`: uint8, (height, width, channels). `features`: float32, (width,).
    """

    kind: Literal["image", "features"]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self.kind in ("image", "features"), "input.kind", self.kind, "'image' or 'features'")
        rank = 3 if self.kind == "image" else 1
        good = len(self.shape) == rank and all(side >= 1 for side in self.shape)
        _check(good, "input.shape", self.shape, f"{rank} positive numbers for input.kind {self.kind!r}")

    @property
    def dtype(self) -> str:
        """numpy's name of the raw samples' dtype."""
        return "uint8" if self.kind == "image" else "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """The device's loop over its data in one round."""

    epochs: int
    batch_size: int

    def __post_init__(self) -> None:
        _check(self.epochs >= 1, "epochs", self.epochs, "a whole number from 1")
        _check(self.batch_size >= 1, "batch_size", self.batch_size, "a whole number from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """What a device needs to know before it opens the plan."""

    interface: str = PLAN_INTERFACE
    minimum_torch: str  # such as "2.4"
    built_with_torch: str
    minimum_samples: int = 1  # 2 where BatchNorm cannot normalise a batch of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One bundle: a model, a learning method, and the files that hold them."""

    name: str
    model: str
    method: str
    hyperparameters: Mapping[str, float]  # the plan's: learning_rate, momentum, … and the method's own
    previous_models: int  # k of MOON: previous local models that a round begins with; 0 for most methods
    training: LocalTraining
    input: InputSpec
    classes: tuple[str, ...]
    tensors: tuple[TensorSpec, ...]
    plan: PlanSpec
    files: Mapping[str, BlobRef]
    format: str = FORMAT
    server_rule: str = field(default="mean")

    def __post_init__(self) -> None:
        _check(self.format == FORMAT, "format", self.format, repr(FORMAT))
        _check(bool(self.name), "name", self.name, "a name that is not empty")
        _check(self.server_rule == "mean", "server_rule", self.server_rule, "'mean'")
        _check(len(self.classes) >= 2, "classes", self.classes, "at least two names")
        _check(all(name.strip() for name in self.classes), "classes", self.classes, "names that are not empty")
        _check(len(set(self.classes)) == len(self.classes), "classes", self.classes, "names that all differ")
        _check(self.previous_models >= 0, "previous_models", self.previous_models, "a whole number from 0")
        names = [tensor.name for tensor in self.tensors]
        _check(names == sorted(set(names)), "tensors", names, "tensors in order of their names, each once")
        for tensor in self.tensors:
            _check(tensor.dtype == FLOAT32, f"dtype of tensor {tensor.name!r}", tensor.dtype, repr(FLOAT32))
            _check(tensor.kind in ("parameter", "statistic"), f"kind of tensor {tensor.name!r}", tensor.kind,
                   "'parameter' or 'statistic'")  # fmt: skip
            _check(all(side >= 0 for side in tensor.shape), f"shape of tensor {tensor.name!r}", tensor.shape,
                   "sizes from 0")  # fmt: skip
        for key, value in self.hyperparameters.items():
            _check(math.isfinite(value), f"hyperparameter {key!r}", value, "a finite number")
        _check(sorted(self.files) == sorted(FILES), "files", sorted(self.files), str(sorted(FILES)))

    def to_bytes(self) -> bytes:
        """The canonical form: sorted keys, no white space, UTF-8. Its sha256 names the bundle."""
        document = {
            "format": self.format,
            "name": self.name,
            "model": self.model,
            "method": self.method,
            "hyperparameters": {key: float(value) for key, value in self.hyperparameters.items()},
            "previous_models": self.previous_models,
            "training": {"epochs": self.training.epochs, "batch_size": self.training.batch_size},
            "server_rule": self.server_rule,
            "input": {"kind": self.input.kind, "shape": list(self.input.shape)},
            "classes": list(self.classes),
            "tensors": [
                {"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "kind": t.kind} for t in self.tensors
            ],
            "plan": {
                "interface": self.plan.interface,
                "minimum_torch": self.plan.minimum_torch,
                "built_with_torch": self.plan.built_with_torch,
                "minimum_samples": self.plan.minimum_samples,
            },
            "files": {name: {"sha256": ref.sha256, "size": ref.size} for name, ref in self.files.items()},
        }
        return _canonical(document)

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Reads and checks a manifest; InvalidInput names the field that is wrong."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("manifest.json is not JSON") from error
        if not isinstance(document, dict):
            raise InvalidInput("manifest.json must hold a JSON object")
        found = document.get("format")
        if found != FORMAT:
            raise InvalidInput(f"manifest.json has format {found!r}; this release reads {FORMAT!r}")
        try:
            manifest = _from_document(document)
        except KeyError as error:
            raise InvalidInput(f"manifest.json lacks the field {error.args[0]!r}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(f"manifest.json has a field of the wrong type: {error}") from error
        if manifest.to_bytes() != content:
            raise InvalidInput("manifest.json is not in canonical form, or has fields that this release does not know")
        return manifest


def _from_document(document: dict[str, Any]) -> Manifest:
    return Manifest(
        name=str(document["name"]),
        model=str(document["model"]),
        method=str(document["method"]),
        hyperparameters={str(key): float(value) for key, value in document["hyperparameters"].items()},
        previous_models=int(document["previous_models"]),
        training=LocalTraining(
            epochs=int(document["training"]["epochs"]), batch_size=int(document["training"]["batch_size"])
        ),
        server_rule=str(document["server_rule"]),
        input=InputSpec(kind=document["input"]["kind"], shape=_shape(document["input"]["shape"])),
        classes=tuple(str(name) for name in document["classes"]),
        tensors=tuple(
            TensorSpec(name=str(t["name"]), shape=_shape(t["shape"]), kind=t["kind"], dtype=str(t["dtype"]))
            for t in document["tensors"]
        ),
        plan=PlanSpec(
            interface=str(document["plan"]["interface"]),
            minimum_torch=str(document["plan"]["minimum_torch"]),
            built_with_torch=str(document["plan"]["built_with_torch"]),
            minimum_samples=int(document["plan"]["minimum_samples"]),
        ),
        files={str(name): BlobRef(str(f["sha256"]), int(f["size"])) for name, f in document["files"].items()},
    )


def _shape(sides: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(side) for side in sides)


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _check(good: bool, name: str, value: object, allowed: str) -> None:
    if not good:
        raise InvalidInput(f"{name} is {value!r}; it must be {allowed}")
