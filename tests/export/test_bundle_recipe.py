"""Recipes of bundles: an invalid one is rejected with one sentence."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET
from moonfed.errors import InvalidInput, UnsafePlan
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import MethodSettings, read_classes
from moonfed.export.methods import METHODS
from moonfed.export.methods.fedavg import FedAvg
from moonfed.export.methods.method import Method
from moonfed.export.optimiser import Sgd
from moonfed.plan.training_spec import TrainingSpec
from moonfed.server_rules.fednova import FedNova
from moonfed.tasks.classification import Classification
from tests.export.conftest import MINE, PICTURES
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

FAULTY = "tests.support.faulty_networks"
TOKENS = InputSpec(kind="tokens", shape=(8,), vocabulary=("", "a"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "alexnet"}, "model is 'alexnet'"),
        (
            {"model": "torchvision:nothing"},
            "model is 'torchvision:nothing'",
        ),
        ({"model": "torchvision:squeezenet1_1"}, "does not accept inputs of 16x16x3: Given input size"),
        (
            {"model": "mlp"},
            "model is 'mlp', input.kind 'image' and the task 'classification'; models for them are cnn, ",
        ),
        ({"model": "nowhere:model"}, "model is 'nowhere:model'"),
        ({"model": f"{MINE}:nothing"}, "cannot be imported: module 'tests.support.residual_network' has no attribute"),
        ({"model": f"{MINE}:not_three_modules"}, "must return three modules"),
        (
            {"model": f"{FAULTY}:calls_python"},
            r"cannot be saved in a plan: .*'_Sign'.* \(.*faulty_networks\.py, line \d+\)",
        ),
        ({"model": f"{FAULTY}:wrong_key"}, r"KeyError in .*faulty_networks\.py, line \d+: 'scale'"),
        ({"model": f"{FAULTY}:always_random"}, "whose predictions are random in evaluation mode"),
        ({"model": f"{FAULTY}:scripted_otherwise"}, "whose ONNX graph and plan predict probabilities that differ by"),
        ({"model": f"{FAULTY}:old_weight_norm"}, "cannot compile: 'WeightNorm' object has no attribute '__name__'"),
        ({"model": f"{MINE}:rejects_the_size"}, "which does not accept inputs of 16x16x3: mat1 and mat2 shapes"),
        (
            {"model": f"{MINE}:returns_a_tuple"},
            "which does not accept inputs of 16x16x3: 'tuple' object has no attribute",
        ),
        ({"settings": {"batch_size": 1}}, "batch_size is 1"),
        ({"settings": {"batch_size": "many"}}, "batch_size is 'many'"),
        ({"settings": {"epochs": "2.5"}}, "epochs is '2.5'"),
        ({"settings": {"epochs": 0}}, "epochs is 0"),
        ({"settings": {"tau": 0}}, "tau is 0.0"),
        ({"settings": {"mu": "-1"}}, "mu is -1.0"),
        ({"settings": {"momentum": 1}}, "momentum is 1.0"),
        ({"settings": {"learning_rate": "nan"}}, "learning_rate is nan"),
        ({"settings": {"previous_models": 0}}, "previous_models is 0"),
        (
            {"settings": {"speed": 3}},
            "setting 'speed' .= 3. is unknown; moon with sgd has batch_size",
        ),
        ({"method": "fedavg", "settings": {"mu": 1}}, "setting 'mu' .= 1. is unknown; fedavg with sgd has batch_size"),
        ({"optimiser": "rmsprop"}, "optimiser is 'rmsprop'; it must be one of sgd, adam, adamw"),
        ({"optimiser": "adam", "settings": {"momentum": 0.9}}, "setting 'momentum' .= 0.9. is unknown; moon with adam"),
        ({"optimiser": "adam", "settings": {"beta2": 1}}, "beta2 is 1.0"),
        ({"settings": {"gradient_clip_norm": -1}}, "gradient_clip_norm is -1.0"),
        ({"method": "scaffold", "settings": {}, "optimiser": "adamw"}, "optimiser is 'adamw'; with method 'scaffold'"),
        ({"optimiser": "adam", "server_rule": FedNova()}, "optimiser is 'adam'; with server_rule 'fednova'"),
        ({"method": "fedmagic"}, f"method is 'fedmagic'; it must be one of {', '.join(METHODS)}"),
        ({"settings": {"views": 2}}, "views is 2 and augmentation 'none'; without augmentation it must be 0"),
        ({"augmentation": "mixup"}, "augmentation is 'mixup'"),
        ({"augmentation": "crop-flip", "input": InputSpec(kind="image", shape=(4, 9, 1))}, "sides of at least 5"),
        ({"projection": 64}, "projection is 64 and model 'tests.support.residual_network:small_resnet'; such a model"),
        ({"settings": {"learning_rate": 1e-50}}, "whose weights do not change in training"),
        ({"mean": (0.1, 0.2)}, "mean holds 2 values; it must hold 1 or 3, one for each of the channels"),
        ({"deviation": (0.0,)}, "std holds 0.0; every standard deviation must be positive"),
        ({"input": InputSpec(kind="image", shape=(16, 16, 1)), "model": "torchvision:resnet18"}, "classifiers need 3"),
        (
            {"task": "anomaly-detection", "target": NO_TARGET, "input": TOKENS},
            "input.kind 'tokens'; it must be image or features or series",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_invalid_recipes_are_rejected_with_one_sentence(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        build_bundle(dataclasses.replace(PICTURES, **{"settings": {}, **change}))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_refused_operators_are_named_with_their_places_before_the_graph_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moonfed.export.bundle_builder.export_graph", None)
    with pytest.raises(UnsafePlan) as error:
        build_bundle(dataclasses.replace(PICTURES, settings={}, model=f"{FAULTY}:recurrent"))
    assert re.search(r"aten::gru_cell \(GRUCell 'encoder\.second', .*rnn\.py, line \d+\)", str(error.value))
    assert re.search(r"aten::rnn_tanh \(RNN 'encoder\.first', .*rnn\.py, line \d+\)", str(error.value))
    assert "; instead of RNN, use nn.GRU; see docs/layers.md" in str(error.value)
    assert str(error.value).startswith("model is 'tests.support.faulty_networks:recurrent'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heavy(FedAvg):
    momentum: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(FedAvg):
    weight: float = 0.5

    def hyperparameters(self) -> dict[str, float]:
        return {"learning_rate": self.weight}


@pytest.mark.parametrize(("method", "name"), [(Heavy(), "momentum"), (Weighted(), "learning_rate")])
def test_a_method_cannot_take_a_name_of_the_optimisers(method: Method, name: str) -> None:
    with refused(InvalidInput, "hyperparameter", name):
        MethodSettings(
            task=Classification(), method=method, optimiser=Sgd(), training=TrainingSpec(epochs=1, batch_size=8)
        )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('cat,"dog, big"', ("cat", "dog, big")),
        ('"a ""b""", c', ('a "b"', "c")),
        ("cat, dog", ("cat", "dog")),
        ("2", ("0", "1")),
    ],
    ids=["comma", "quotes", "space", "number"],
)
def test_names_of_classes_may_hold_a_comma_in_quotes(text: str, names: tuple[str, ...]) -> None:
    assert read_classes(text) == names


@pytest.mark.parametrize("text", ["cat,", "", '"cat', '"cat"s,dog'])
def test_wrong_names_of_classes_are_reported(text: str) -> None:
    with refused(InvalidInput, "classes"):
        read_classes(text)
