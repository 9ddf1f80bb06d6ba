"""The target of a sample: what a manifest may say of it, and how it reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target, read_target
from moonfed.errors import InvalidInput, VersionMismatch
from tests.support.refusals import refused

SPECS = [
    class_target(("cat", "dog")),
    TargetSpec(kind="labels", names=("a", "b", "c"), shape=(3,)),
    TargetSpec(kind="values", names=("price",), shape=(1,), units=("EUR",), mean=(3,), deviation=(2,)),
    TargetSpec(kind="values", names=("load", "heat"), shape=(24, 2)),
    TargetSpec(kind="mask", names=("crop", "weed"), shape=(4, 6)),
    TargetSpec(kind="next", shape=(0,)),
    NO_TARGET,
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.describe())
def test_a_target_reads_back(spec: TargetSpec) -> None:
    assert read_target(spec.to_text(), "it") == spec
    assert TargetSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "sound", "shape": (3,)}, "target.kind"),
        ({"kind": "class", "names": ("one",)}, "classes"),
        ({"kind": "class", "names": ("a", "a")}, "classes"),
        ({"kind": "mask", "names": ("a", " "), "shape": (2, 2)}, "classes"),
        ({"kind": "labels", "shape": (0,)}, "target.names"),
        ({"kind": "none", "names": ("a",), "shape": (0,)}, "target.names"),
        ({"kind": "values", "names": ("a\nb",), "shape": (1,)}, "name of a target"),
        ({"kind": "class", "names": ("a", "b"), "shape": (2,)}, "target.shape"),
        ({"kind": "labels", "names": ("a", "b"), "shape": (3,)}, "target.shape"),
        ({"kind": "values", "names": ("a",), "shape": (0, 1)}, "target.shape"),
        ({"kind": "mask", "names": ("a", "b"), "shape": (4,)}, "target.shape"),
        ({"kind": "next", "shape": ()}, "target.shape"),
        ({"kind": "values", "names": ("a",), "shape": (1,), "units": ("m", "s")}, "target.units"),
        ({"kind": "class", "names": ("a", "b"), "mean": (0.0, 0.0)}, "target.mean"),
        ({"kind": "values", "names": ("a",), "shape": (1,), "deviation": (0.0,)}, "target.deviation"),
        ({"kind": "values", "names": ("a",), "shape": (1,), "mean": (float("nan"),)}, "target.mean"),
    ],
)
def test_a_wrong_target_is_refused_by_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        TargetSpec(**fields)
    assert refusal.value.field == field


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "class"}', '{"kind": "class", "shape": 3}'])
def test_other_text_is_no_target(text: str) -> None:
    with refused(InvalidInput, "target"):
        read_target(text, "model.onnx")


def test_numbered_classes_are_named_by_their_numbers() -> None:
    assert class_target(3).names == ("0", "1", "2")


def test_a_field_of_a_later_release_is_not_left_out_of_account() -> None:
    document = json.loads(class_target(2).to_text())
    with refused(VersionMismatch, "threshold"):
        read_target(json.dumps(document | {"threshold": 0.5}), "model.onnx")
