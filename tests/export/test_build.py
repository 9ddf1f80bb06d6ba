"""Bundles built from Python: a user's modules, their weights, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.export import build_bundle
from moonfed.signing.bundle_signature import signed_by
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "python-client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULES = "give three modules: encoder, projection head, output layer"


class Small(nn.Module):
    """A classifier as users write them: one module, whose last layer is linear."""

    def __init__(self, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(features))
        return logits


class Scaled(Small):
    """A classifier that goes on after its last linear layer."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(features)


def test_the_guides_module_becomes_a_signed_bundle_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    block = BLOCK.findall(GUIDE.read_text())[-1]
    exec(compile(block, str(GUIDE), "exec"), names)
    bundle, model = names["bundle"], names["model"]
    assert isinstance(bundle, Bundle)
    assert isinstance(model, nn.Sequential)
    assert read_bundle(tmp_path / "tumours.zip", signed_by(None)) == bundle
    manifest = bundle.manifest
    assert (manifest.name, manifest.model, manifest.method) == ("tumours", "Sequential", "fedprox")
    assert manifest.classes == ("benign", "malignant")
    path = tmp_path / "weights"
    path.write_bytes(bundle.contents[WEIGHTS_FILE])
    weights = split(np.array(open_model(path, manifest.tensors)), manifest.tensors)
    assert weights.keys() == {"encoder.0.bias", "encoder.0.weight", "output_layer.bias", "output_layer.weight"}
    assert isinstance(model[2], nn.Linear), "the module is not changed"
    np.testing.assert_array_equal(weights["output_layer.weight"], model[2].weight.detach().numpy())
    with pytest.raises(AlreadyExists, match="is a bundle"):
        build_bundle(model=model, shape=30, classes=2, output="tumours.zip")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: Small(classes=5),
            rf"whose last layer is not nn.Linear\(…, 3\), one output for each class, label or value; {MODULES}",
        ),
        (lambda: nn.Linear(4, 3), "whose last layer is not"),
        (lambda: Scaled(), f"computes something after its last linear layer; .*{MODULES}"),
        (lambda: nn.Sequential(nn.Linear(9, 6), nn.Linear(6, 3)), "model is Sequential, which raised RuntimeError"),
        (lambda: (Small(),), "it must be one module, or three"),
        (lambda: "perceptron", "model is 'perceptron'"),
    ],
)
def test_a_model_that_does_not_fit_is_named(model: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build_bundle(model=model(), shape=4, classes=3)


AUTOENCODER = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6))


def test_an_autoencoder_is_no_classifier_of_unnamed_classes() -> None:
    with pytest.raises(InvalidInput, match="classes is 6, and a sample of model 'Sequential' has as many numbers"):
        build_bundle(model=AUTOENCODER, shape=6, classes=6)
    picture = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1))
    parts = (picture, nn.Identity(), nn.Identity())
    with pytest.raises(
        InvalidInput, match=r"have shape \[2, 256\]; it must be \[2, 3\]; for an autoencoder, choose task"
    ):
        build_bundle(model=parts, shape=(16, 16, 1), classes=3)


def test_named_classes_may_be_as_many_as_features() -> None:
    assert build_bundle(model=AUTOENCODER, shape=6, classes=tuple("abcdef")).manifest.classes == tuple("abcdef")


def test_a_module_without_source_is_explained() -> None:
    namespace = {"nn": nn, "torch": torch}
    text = "class Unseen(nn.Sequential):\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
    exec(text + "        return self[1](self[0](x))", namespace)
    unseen = namespace["Unseen"](nn.Linear(4, 5), nn.Linear(5, 3))  # type: ignore[operator]
    with pytest.raises(InvalidInput, match="source TorchScript cannot read; define its classes in a notebook's cells"):
        build_bundle(model=unseen, shape=4, classes=3)


def test_wrong_shapes_and_methods_are_named() -> None:
    with refused(InvalidInput, "shape", (4, 4, 1, 1)):
        build_bundle(model=Small(), shape=(4, 4, 1, 1), classes=3)
    with refused(InvalidInput, "method", "solo"):
        build_bundle(model=Small(), shape=4, classes=3, method="solo")
