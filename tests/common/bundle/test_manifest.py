"""Manifests have one canonical form; errors name the field."""

import dataclasses
import json
from typing import Any

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import FILES, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import selection_of
from moonfed.server_rules.fedavgm import FedAvgM
from tests.support.graph_manifest import with_graphs
from tests.support.refusals import refused

CONTENTS = {name: name.encode() for name in FILES}
MANIFEST = Manifest(
    name="digits",
    model="cnn",
    method="moon",
    previous_models=1,
    training=TrainingSpec(epochs=10, batch_size=64, hyperparameters={"mu": 5.0, "tau": 0.5}),
    input=InputSpec(kind="image", shape=(8, 8, 1)),
    target=class_target(("zero", "ön€")),
    tensors=(TensorSpec("a", (2, 3), "parameter"), TensorSpec("b", (), "statistic")),
    plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.13.0", activation_bytes=0),
    files={name: ref_of_bytes(content) for name, content in CONTENTS.items()},
)
PROTOTYPES = (TensorSpec("present", (2,), "statistic"), TensorSpec("prototypes", (2, 3), "statistic"))
CLASS_MEANS = (TensorSpec("mask", (2,), "statistic"), TensorSpec("means", (2, 3), "statistic"))
EVERYTHING = dataclasses.replace(
    MANIFEST,
    method="fedssc",
    training=TrainingSpec(
        epochs=10, batch_size=64, views=4, hyperparameters={"mu_glob": 1.0, "stage": 1.0, "tau": 0.5}
    ),
    server_rule=selection_of(FedAvgM(server_momentum=0.7, damped=True, weighting="uniform")),
    prototype_devices=3,
    schedules={"mu_glob": ((5, 1.0), (100, 0.0001)), "stage": ((90, 1.0), (91, 2.0))},
    downlink={"prototypes": PROTOTYPES, "variate": MANIFEST.parameters},
    uplink={"class_means": CLASS_MEANS, "variate_change": MANIFEST.parameters},
    device_state={"device_variate": MANIFEST.parameters},
    augmentation="crop-flip",
)
WITH_GRAPHS = with_graphs(MANIFEST, minimum_torch="2.12")
WITHOUT_GRAPHS = dataclasses.replace(MANIFEST, plan=dataclasses.replace(MANIFEST.plan, untraceable="it branches on mu"))


def altered(change: dict[str, Any], manifest: Manifest = MANIFEST) -> bytes:
    document = json.loads(manifest.to_bytes())
    for path, value in change.items():
        *parents, last = path.split(".")
        place = document
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is ...:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("manifest", [MANIFEST, EVERYTHING, WITH_GRAPHS, WITHOUT_GRAPHS])
def test_reading_and_writing_gives_the_same_bytes(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert altered({}, manifest) == manifest.to_bytes()


def test_a_method_that_exchanges_only_the_model_is_described_as_such() -> None:
    document = json.loads(MANIFEST.to_bytes())
    assert document["server_rule"] == {"name": "mean", "weighting": "samples"}
    assert document["training"] == {
        "epochs": 10,
        "batch_size": 64,
        "views": 0,
        "hyperparameters": {"mu": 5.0, "tau": 0.5},
    }
    assert [document[key] for key in ("downlink", "uplink", "device_state", "schedules")] == [{}, {}, {}, {}]
    assert MANIFEST.training_at(7) == MANIFEST.training


@pytest.mark.parametrize(
    ("round_", "weight", "stage"),
    [
        (1, 1.0, 1),
        (5, 1.0, 1),
        (6, 1 - 0.9999 / 95, 1),
        (90, 1 - 0.9999 * 85 / 95, 1),
        (91, 1 - 0.9999 * 86 / 95, 2),
        (100, 0.0001, 2),
        (1000, 0.0001, 2),
    ],
)
def test_a_schedule_is_linear_between_its_points_and_constant_outside(round_: int, weight: float, stage: int) -> None:
    found = EVERYTHING.training_at(round_).hyperparameters
    assert found == {"mu_glob": pytest.approx(weight), "stage": stage, "tau": 0.5}


def test_the_models_parameters_are_its_tensors_that_are_trained() -> None:
    assert MANIFEST.parameters == (TensorSpec("a", (2, 3), "parameter"),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "bundle"}, "format 'bundle'; it must be 'moonfed-bundle/4'"),
        ({"target": {"kind": "class", "shape": [], "names": ["a"]}}, "classes is .* at least two"),
        ({"target": {"kind": "class", "shape": [], "names": ["a", "a"]}}, "all differ"),
        ({"target": {"kind": "class", "shape": [], "names": ["a", " "]}}, "not empty"),
        ({"target": ...}, "lacks the field 'target'"),
        ({"training.epochs": 0}, "epochs is 0"),
        ({"training.epochs": 2**32}, "epochs is 4294967296"),
        ({"training.batch_size": 2**32}, "batch_size is 4294967296"),
        ({"training.batch_size": "many"}, "wrong type"),
        ({"input.kind": "sound"}, "input.kind is 'sound'"),
        ({"input.shape": [8, 8]}, "input.shape is"),
        ({"tensors.0.dtype": "F64"}, "dtype of tensor 'a' is 'F64'"),
        ({"tensors.0.kind": "secret"}, "kind of tensor 'a'"),
        ({"tensors.0.name": "z"}, "in order of their names"),
        ({"training.hyperparameters.mu": "5"}, "canonical"),
        ({"files.plan.pt.sha256": "x"}, "wrong type|sha256"),
        ({"previous_models": -1}, "previous_models is -1"),
        ({"metric.maximise": {"a": 1}}, "metric.maximise is 'dict'"),
        ({"metric.share": 1}, "metric.share is 'int'"),
        ({"name": "digits\nrun x: submitted"}, "name is .* control characters"),
        ({"model": "cnn\x1b[2J"}, "model is .* control characters"),
        ({"augmentation": "\u202eenon"}, "augmentation is .* control characters"),
        ({"target": {"kind": "class", "shape": [], "names": ["cat", "dog\r"]}}, "name of a class is .* one line"),
        ({"tensors.0.name": "a\u2028"}, "name of a tensor of tensors is .* one line"),
        ({"plan.minimum_torch": "two"}, "plan.minimum_torch is 'two'"),
        ({"plan.graph_minimum_torch": "2.4.1"}, "plan.graph_minimum_torch is '2.4.1'"),
        ({"plan.graph_minimum_torch": "2.4"}, "plan.graph_minimum_torch is '2.4'.* only if, there is 'plan.json'"),
        ({"plan.untraceable": "one\ntwo"}, "plan.untraceable is .* one line"),
    ],
)
def test_a_wrong_manifest_is_rejected_by_field(change: dict[str, Any], message: str) -> None:
    if "files.plan.pt.sha256" in change:
        document = json.loads(MANIFEST.to_bytes())
        document["files"]["plan.pt"]["sha256"] = "x"
        content = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    else:
        content = altered(change)
    with pytest.raises(InvalidInput, match=message):
        Manifest.from_bytes(content)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"format": "moonfed-bundle/9"}, "format", "moonfed-bundle/9"),
        ({"surprise": 1}, "surprise", None),
        ({"tensors.0.sparse": True}, "tensors.0.sparse", None),
        ({"metric.weights": [1]}, "metric.weights", None),
        ({"plan.surprise": 1, "name": "another"}, "plan.surprise", None),
    ],
)
def test_another_version_and_an_unknown_field_are_another_releases(
    change: dict[str, Any], field: str, value: str | None
) -> None:
    with refused(VersionMismatch, field, value):
        Manifest.from_bytes(altered(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"downlink.secrets": []}, "role of downlink is 'secrets'; it must be one of variate, prototypes"),
        ({"uplink.variate": []}, "role of uplink is 'variate'; it must be one of variate_change, class_means"),
        ({"device_state.model": []}, "role of device_state is 'model'; it must be one of device_variate"),
        ({"downlink.prototypes.0.name": "z"}, "downlink 'prototypes' is .* in order of their names"),
        ({"uplink.class_means.0.shape": [-1]}, "shape of tensor 'mask'"),
        ({"uplink": ...}, "lacks the field 'uplink'"),
        ({"schedules.mu_glob": []}, "schedule of 'mu_glob' is"),
        ({"schedules.mu_glob": [[5, 1.0], [5, 2.0]]}, r"schedule of 'mu_glob' .* order of the rounds, each once"),
        ({"schedules.mu_glob": [[6, 1.0], [5, 2.0]]}, "in order of the rounds"),
        ({"schedules.mu": [[5, 1.0]]}, "name of a schedule is 'mu'; it must be a hyperparameter's"),
        ({"schedules.mu_glob": [5, 1.0]}, "wrong type"),
        ({"prototype_devices": -1}, "prototype_devices is -1"),
        ({"training.views": -1}, "views is -1"),
        ({"training.views": 2**32}, "views is 4294967296"),
        ({"training.views": ...}, "wrong type|canonical"),
        ({"server_rule.name": ["mean"]}, r"name is \['mean'\]"),
        ({"server_rule.damped": None}, "damped is None"),
        ({"server_rule.name": ...}, "canonical"),
        ({"augmentation": ""}, "augmentation is ''"),
    ],
)
def test_wrong_roles_schedules_and_rules_are_rejected_by_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Manifest.from_bytes(altered(change, EVERYTHING))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, MANIFEST.to_bytes() + b"\n"])
def test_an_invalid_manifest_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        Manifest.from_bytes(content)
