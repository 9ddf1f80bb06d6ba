"""The target of a sample: what a model is to predict, as data hold it and as devices keep it in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar, get_args

from moonfed.errors import InvalidInput
from moonfed.format_version import refuse_unknown_fields
from moonfed.validate import require, require_line


class _Described(Protocol):
    def to_document(self) -> dict[str, Any]: ...


Spec = TypeVar("Spec", bound=_Described)
Kind = Literal["class", "labels", "values", "mask", "none", "next"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTPUTS = ("probabilities", "values", "scores")  # of ONNX graphs
# In a served model's configuration, and in an ONNX file's metadata: a TargetSpec, and the score above which a sample is
# unusual.
TARGET_PARAMETER, THRESHOLD_PARAMETER = "moonfed.target", "moonfed.threshold"
UNKNOWN = 255  # of a label: unknown; of a pixel: ignored
LIKELY = 0.5  # probability from which a label applies
MAX_MASK_CLASSES = 255  # a mask is uint8
_NAMED: tuple[Kind, ...] = ("class", "labels", "values", "mask")
_DTYPES: Mapping[Kind, str] = {
    "class": "int64",
    "labels": "uint8",
    "values": "float32",
    "mask": "uint8",
    "none": "uint8",
    "next": "uint8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """One sample's target, without the batch dimension.

    | kind | array of N samples | names |
    | --- | --- | --- |
    | `class` | int64 [N], positions in `names` | classes, two at least |
    | `labels` | uint8 [N, L], 0, 1, or 255 for unknown | labels |
    | `values` | float32 [N, T], or [N, H, T] for H steps of a forecast | values |
    | `mask` | uint8 [N, height, width], positions in `names`, or 255 to ignore | classes, two at least |
    | `none` | uint8 [N, 0]: the input is the target | – |
    | `next` | uint8 [N, 0]: the input, shifted by one, is the target | – |
    """

    kind: Kind
    names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    units: tuple[str, ...] = ()  # one for each value, or none at all
    mean: tuple[float, ...] = ()  # of each value; a model learns (value − mean) / deviation; empty: 0
    deviation: tuple[float, ...] = ()  # empty: 1

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "target.kind", self.kind, f"one of {', '.join(KINDS)}")
        least = 2 if self.kind in ("class", "mask") else 1 if self.kind in _NAMED else 0
        amount = {0: "no names", 1: "at least one name", 2: "at least two names"}[least]
        field = "classes" if self.kind in ("class", "mask") else "target.names"
        require(len(self.names) >= least and (least > 0 or not self.names), field, self.names, amount)
        require(all(name.strip() for name in self.names), field, self.names, "names that are not empty")
        require(len(set(self.names)) == len(self.names), field, self.names, "names that all differ")
        for name in self.names:
            require_line("name of a class" if field == "classes" else "name of a target", name)
        self._require_shape()
        self._require_scale()

    def _require_shape(self) -> None:
        count = len(self.names)
        fits = {
            "class": self.shape == (),
            "labels": self.shape == (count,),
            "values": self.shape[-1:] == (count,) and len(self.shape) <= 2,
            "mask": len(self.shape) == 2 and count <= MAX_MASK_CLASSES,
        }.get(self.kind, self.shape == (0,))
        require(fits and all(side > 0 for side in self.shape if self.kind in _NAMED), "target.shape", self.shape,
                f"the shape of {count} {self.kind}")  # fmt: skip

    def _require_scale(self) -> None:
        for name, values in (("units", self.units), ("mean", self.mean), ("deviation", self.deviation)):
            allowed = self.kind == "values" and len(values) in (0, len(self.names))
            require(allowed or not values, f"target.{name}", values, "one for each value")
        for unit in self.units:
            require(unit == "" or unit.isprintable(), "unit of a target", unit, "printable")
        require(all(map(math.isfinite, self.mean)), "target.mean", self.mean, "finite numbers")
        good = all(math.isfinite(value) and value > 0 for value in self.deviation)
        require(good, "target.deviation", self.deviation, "finite numbers above 0")
        for name in ("mean", "deviation"):  # whole numbers, or NumPy's: a manifest has one form only
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))

    @property
    def dtype(self) -> str:
        """The dtype of the array, as numpy names it."""
        return _DTYPES[self.kind]

    @property
    def output(self) -> str:
        """The name of a model's output in its ONNX graph."""
        return {"values": "values", "none": "scores"}.get(self.kind, "probabilities")

    @property
    def noun(self) -> str:
        """The word for the targets of several samples."""
        return {"class": "labels", "labels": "labels", "values": "values", "mask": "masks"}.get(self.kind, "targets")

    @property
    def unit(self) -> str:
        """The unit that all values have; empty if they have none, or several."""
        return self.units[0] if len(set(self.units)) == 1 else ""

    @property
    def named(self) -> str:
        """The word for its names."""
        return {"labels": "labels", "values": "values"}.get(self.kind, "classes")

    @property
    def is_input(self) -> bool:
        """True if the target follows from the input, so that data need none."""
        return self.kind in ("none", "next")

    @property
    def names_with_units(self) -> tuple[str, ...]:
        """The names, those of values with their units, such as "price (EUR)"."""
        units = self.units or ("",) * len(self.names)
        return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(self.names, units, strict=True))

    @property
    def unscaled(self) -> TargetSpec:
        """The target without the scales of its values, which differ between bundles that predict the same."""
        return replace(self, mean=(), deviation=())

    def describe(self) -> str:
        """Return the targets in words, such as "3 classes"."""
        word = {"class": "class", "labels": "label", "values": "value", "mask": "class"}.get(self.kind, "")
        count = len(self.names)
        plural = word if count == 1 else f"{word}es" if word == "class" else f"{word}s"
        return {
            "mask": f"masks of {count} classes",
            "none": "no targets",
            "next": "the next token",
        }.get(self.kind, f"{count} {plural}")

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        document: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape)}
        for name in ("names", "units", "mean", "deviation"):
            if values := getattr(self, name):
                document[name] = list(values)
        return document

    def to_text(self) -> str:
        """Return the JSON that model files hold."""
        return json.dumps(self.to_document(), ensure_ascii=False)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TargetSpec:
        """Read what `to_document` returned; raise KeyError, TypeError or InvalidInput."""
        return cls(
            kind=document["kind"],
            names=tuple(str(name) for name in document.get("names", ())),
            shape=tuple(int(side) for side in document["shape"]),
            units=tuple(str(unit) for unit in document.get("units", ())),
            mean=tuple(float(value) for value in document.get("mean", ())),
            deviation=tuple(float(value) for value in document.get("deviation", ())),
        )


def read_target(text: str, where: str) -> TargetSpec:
    """Read `TargetSpec.to_text`; raise InvalidInput for text that is not moonfed's."""
    return read_text(TargetSpec.from_document, text, where, "target")


def read_text(read: Callable[[Any], Spec], text: str, where: str, field: str) -> Spec:
    """Read JSON that a model file or a configuration holds.

    Raises InvalidInput for text that is not moonfed's, VersionMismatch for a field that this release does not know.
    """
    try:
        document = json.loads(text)
        spec = read(document)
        refuse_unknown_fields(where, document, spec.to_document())
        return spec
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            f"{where} does not describe its {field}; files written by `moonfed-export onnx` do", field=field
        ) from error


NO_TARGET = TargetSpec(kind="none", shape=(0,))  # of inputs that are reproduced, or only predicted


def class_target(classes: Sequence[str] | int) -> TargetSpec:
    """Return the target of a classification; the names of a number of classes are 0, 1 and so on."""
    return TargetSpec(
        kind="class", names=tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)
    )
