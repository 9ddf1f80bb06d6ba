"""Pretrained tensors find their place by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from moonfed.errors import InvalidInput
from moonfed.export.network import Network
from moonfed.export.weights.matching import load_pretrained, match_names
from moonfed.export.weights.pretrained import PretrainedWeights
from tests.support.refusals import refused

WANTED = (
    "encoder.0.bias",
    "encoder.0.weight",
    "encoder.1.running_mean",
    "encoder.1.weight",
    "output_layer.bias",
    "output_layer.weight",
)
BODY = ("0.bias", "0.weight", "1.running_mean", "1.weight")


def network() -> Network:
    torch.manual_seed(1)
    return Network(nn.Identity(), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)), nn.Identity(), nn.Linear(4, 2))


def weights(tensors: dict[str, torch.Tensor], **settings: object) -> PretrainedWeights:
    return PretrainedWeights(source="w.pth", sha256="0" * 64, tensors=tensors, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "dropped", "added"),
    [
        ([f"encoder.{name}" for name in BODY], "", ""),
        (BODY, "", "encoder."),
        ([f"module.{name}" for name in BODY], "module.", "encoder."),
        ([f"module.encoder.{name}" for name in BODY], "module.", ""),
        ([f"model.backbone.{name}" for name in BODY], "model.backbone.", "encoder."),
    ],
    ids=["exact", "added", "replaced", "dropped", "two-parts"],
)
def test_names_match_after_a_prefix_is_dropped_or_added(found: Sequence[str], dropped: str, added: str) -> None:
    match = match_names(WANTED, [*found, "fc.bias"], keep_head=False, source="w.pth")
    assert (match.dropped, match.added) == (dropped, added)
    assert dict(match.loaded) == dict(zip(WANTED, found, strict=False))
    assert (match.new, match.unused) == (WANTED[4:], ("fc.bias",))


def test_a_line_says_what_was_loaded_and_what_was_not() -> None:
    match = match_names(WANTED, [*BODY, "fc.bias", "fc.weight"], keep_head=False, source="w.pth")
    assert match.describe("w.pth") == (
        'loaded 4 of 6 tensors from w.pth (prefix "encoder." added); new: output_layer.bias, output_layer.weight; '
        "unused: fc.bias, fc.weight"
    )


@pytest.mark.parametrize("keep_head", [False, True])
def test_the_head_stays_new_unless_it_is_kept(keep_head: bool) -> None:
    match = match_names(WANTED, WANTED, keep_head=keep_head, source="w.pth")
    assert match.new == (() if keep_head else WANTED[4:])
    assert match.unused == match.new


def test_fewer_than_half_of_the_names_are_refused() -> None:
    with refused(InvalidInput, "weights", "w.pth"):
        match_names(WANTED, ["0.weight", "stem.kernel", "stem.offset"], keep_head=False, source="w.pth")
    with refused(InvalidInput, "weights", "w.pth"):  # where layers may be folded, all are needed
        match_names(WANTED, BODY[:3], keep_head=False, source="w.pth", least=1.0)


def test_tensors_are_copied_by_name_and_renamed_first() -> None:
    model, other = network(), network()
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.add_(1.0)
    tensors = {name.replace("encoder.", "stem."): tensor for name, tensor in other.state_dict().items()}
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    match = load_pretrained(model, weights(tensors, renames={"stem.": "encoder."}))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name] if name in match.loaded else before[name])
    assert set(match.loaded) == {"encoder.0.bias", "encoder.0.weight", "encoder.1.bias", "encoder.1.weight"}


def test_other_shapes_are_refused_and_change_nothing() -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    tensors["encoder.1.weight"] = torch.zeros(4, 5)
    with refused(InvalidInput, "weights", "w.pth") as error:
        load_pretrained(model, weights(tensors))
    assert "encoder.1.weight is [4, 5] and must be [4, 4]" in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
