"""Bundles built from Python: a user's modules, their weights, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from moonfed.bundle import read_bundle
from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.export import build_bundle
from moonfed.manifest import WEIGHTS_FILE
from moonfed.signing.bundle_signature import signed_by
from moonfed.tensors import open_model, split

MODULES = "give three modules: encoder, projection head, output layer"


class Small(nn.Module):
    """A classifier as users write them: one module, whose last layer is linear."""

    def __init__(self, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(features))


class Scaled(Small):
    """A classifier that goes on after its last linear layer."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return 2 * self.head(self.layers(features))


def test_a_module_becomes_a_signed_bundle_with_its_weights(tmp_path: Path) -> None:
    model = Small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    output = tmp_path / "small.zip"
    bundle = build_bundle(
        model=model, shape=4, classes=["a", "b", "c"], output=output, method="fedprox", settings={"mu": 0.1}
    )
    assert read_bundle(output, signed_by(None)) == bundle
    manifest = bundle.manifest
    assert (manifest.name, manifest.model, manifest.method, manifest.classes) == (
        *("small", "Small", "fedprox"),
        ("a", "b", "c"),
    )
    path = tmp_path / "weights"
    path.write_bytes(bundle.contents[WEIGHTS_FILE])
    weights = split(np.array(open_model(path, manifest.tensors)), manifest.tensors)
    assert weights.keys() == {
        "encoder.layers.0.bias",
        "encoder.layers.0.weight",
        "output_layer.bias",
        "output_layer.weight",
    }
    np.testing.assert_array_equal(weights["output_layer.weight"], before["head.weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), "it is a copy"
    with pytest.raises(AlreadyExists, match="is a bundle"):
        build_bundle(model=model, shape=4, classes=3, output=output)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: Small(classes=5), rf"whose last layer is not nn.Linear\(…, 3\), one output for each class; {MODULES}"),
        (lambda: nn.Linear(4, 3), "whose last layer is not"),
        (lambda: Scaled(), f"computes something after its last linear layer; .*{MODULES}"),
        (lambda: nn.Sequential(nn.Linear(9, 6), nn.Linear(6, 3)), "model is Sequential, which raised RuntimeError"),
        (lambda: (Small(),), "it must be one module, or three"),
        (lambda: "perceptron", "model is 'perceptron'; it must be one of cnn"),
    ],
)
def test_a_model_that_does_not_fit_is_named(model: Callable[[], nn.Module], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        build_bundle(model=model(), shape=4, classes=3)


def test_a_module_without_source_is_explained() -> None:
    namespace = {"nn": nn, "torch": torch}
    text = "class Unseen(nn.Sequential):\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
    exec(text + "        return self[1](self[0](x))", namespace)  # noqa: S102 - as an interpreter without a file does
    unseen = namespace["Unseen"](nn.Linear(4, 5), nn.Linear(5, 3))  # type: ignore[operator]
    with pytest.raises(InvalidInput, match="source TorchScript cannot read; define its classes in a notebook's cells"):
        build_bundle(model=unseen, shape=4, classes=3)


def test_wrong_shapes_and_methods_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"shape is \(4, 4\); it must be"):
        build_bundle(model=Small(), shape=(4, 4), classes=3)
    with pytest.raises(InvalidInput, match="method is 'solo', whose devices exchange nothing"):
        build_bundle(model=Small(), shape=4, classes=3, method="solo")
