"""Position embeddings for images of another size, compared with torchvision's function."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.bundle_builder import _load_weights
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.torchvision_import import import_torchvision
from moonfed.export.weights.position_embeddings import interpolated
from moonfed.export.weights.pretrained import PretrainedWeights, Resizing

NAME = "encoder.pos_embedding"


MODEL = "torchvision:vit_b_32"


def images(side: int) -> InputSpec:
    return InputSpec(kind="image", shape=(side, side, 3))


def transformer(side: int) -> Network:
    """A network without values, which would take seconds."""
    with torch.device("meta"):
        return build_network(MODEL, images(side), class_target(2))


def test_a_vision_transformer_starts_from_weights_of_another_image_size() -> None:
    network, embedding = transformer(96), torch.randn(1, 50, 768, generator=torch.Generator().manual_seed(1))
    network.encoder.get_submodule("encoder").pos_embedding = nn.Parameter(torch.zeros(1, 10, 768))
    tensors = {name.removeprefix("encoder."): tensor for name, tensor in transformer(224).state_dict().items()}
    weights = PretrainedWeights(
        source="w.pth",
        sha256="0" * 64,
        tensors={**tensors, NAME: embedding},
        resizing=Resizing(interpolation="bicubic", sides=(224, 224)),
    )
    recipe, lines = BundleRecipe(name="b", model=MODEL, input=images(96), target=class_target(2)), list[str]()
    _load_weights(network, recipe.starting_from(weights), lines.append)
    assert "; interpolated: encoder.encoder.pos_embedding, from 7x7 to 3x3 patches" in lines[0]
    assert weights.resizing.difference("w.pth", (96, 96, 3)) in lines
    function = import_torchvision().models.vision_transformer.interpolate_embeddings
    expected = function(96, 32, OrderedDict({NAME: embedding}))[NAME]
    assert torch.equal(network.get_parameter(f"encoder.{NAME}"), expected)


@pytest.mark.parametrize("tokens", [0, 1, 2])
def test_the_embeddings_of_class_tokens_are_kept(tokens: int) -> None:
    embedding = torch.arange(tokens + 16.0).view(1, -1, 1)
    found = interpolated("pos_embed", embedding, torch.Size([1, tokens + 49, 1]))
    assert found is not None
    assert (found.before, found.after) == (4, 7)
    torch.testing.assert_close(found.tensor[0, :tokens], embedding[0, :tokens])
    torch.testing.assert_close(found.tensor[0, tokens], embedding[0, tokens])  # the grid's corners stay
    torch.testing.assert_close(found.tensor[0, -1], embedding[0, -1])


@pytest.mark.parametrize(
    ("name", "shape"), [("pos_embed", (1, 33, 4)), ("pos_embed", (1, 65, 5)), ("mask", (1, 65, 4))]
)
def test_other_shapes_are_left_to_be_refused(name: str, shape: tuple[int, ...]) -> None:
    assert interpolated(name, torch.zeros(1, 17, 4), torch.Size(shape)) is None
