"""Low-rank changes: what they compute, train and become in a model without them."""

from __future__ import annotations

import copy
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.lora import LoraSettings, add_lora, merged, merged_weights, read_lora
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.preprocessing import build_preprocessing
from moonfed.export.torchvision_import import import_torchvision
from tests.export.conftest import NewPlan, batches, hyperparameters
from tests.support.eager_reference import weights_of
from tests.support.plan_rounds import run_round
from tests.support.refusals import refused

SERIES = InputSpec(kind="series", shape=(6, 8))
NEEDS_PEFT = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
ALL = LoraSettings(rank=2, alpha=4.0, targets="all")
LAYERS = [
    "encoder.before",
    "encoder.attend.self_attn",
    "encoder.attend.self_attn.out_proj",
    "encoder.attend.linear1",
    "encoder.attend.linear2",
]


class Encoder(nn.Module):
    """A convolution in groups, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.attend(self.before(series.transpose(1, 2)).transpose(1, 2)).mean(1)
        return found


def new_network() -> Network:
    torch.manual_seed(0)
    return Network(build_preprocessing(SERIES, None, None), Encoder(), nn.Identity(), nn.Linear(8, 3))


def with_changes(settings: LoraSettings = ALL) -> Network:
    """A network whose B are no longer zero."""
    network = new_network()
    add_lora(network, settings, 1)
    for name, parameter in network.named_parameters():
        if name.endswith("lora_b"):
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
    return network


def test_settings_are_read() -> None:
    assert read_lora("rank=8") == LoraSettings(rank=8, alpha=16.0, targets="attention", train="b")
    found = read_lora("rank=2, alpha=0.5, targets=encoder.layer?.*, train=both")
    assert found == LoraSettings(rank=2, alpha=0.5, targets="encoder.layer?.*", train="both")
    assert found.warning
    assert not ALL.warning


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("alpha=1", "lora", "alpha=1"),
        ("rank", "lora", "rank"),
        ("rank=2,size=3", "lora", "size"),
        ("rank=0", "lora.rank", 0),
        ("rank=x", "lora.rank", "x"),
        ("rank=1,alpha=-1", "lora.alpha", -1.0),
        ("rank=1,targets=", "lora.targets", ""),
        ("rank=1,train=a", "lora.train", "a"),
    ],
)
def test_invalid_settings_are_refused(text: str, field: str, value: object) -> None:
    with refused(InvalidInput, field, value):
        read_lora(text)


@pytest.mark.parametrize(
    ("targets", "layers"),
    [
        ("all", LAYERS),
        ("attention", LAYERS[1:3]),
        ("linear", LAYERS[3:]),
        ("convolution", LAYERS[:1]),
        ("*.linear[2-9]", LAYERS[4:]),
    ],
)
def test_targets_get_changes_that_begin_as_nothing_and_are_all_that_is_trained(targets: str, layers: list[str]) -> None:
    network, inputs = new_network(), torch.randn(4, *SERIES.shape)
    before, names = network(inputs), list(network.state_dict())
    assert sorted(add_lora(network, LoraSettings(rank=2, targets=targets), 1)) == sorted(layers)
    torch.testing.assert_close(network(inputs), before)
    assert set(network.state_dict()) == {*names, *(f"{layer}.lora_{each}" for layer in layers for each in "ab")}
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert trained == {"output_layer.weight", "output_layer.bias", *(f"{layer}.lora_b" for layer in layers)}


def test_a_model_without_the_targets_is_refused() -> None:
    network = Network(build_preprocessing(SERIES, None, None), nn.Linear(8, 8), nn.Identity(), nn.Linear(48, 3))
    with refused(InvalidInput, "lora.targets", "attention"):
        add_lora(network, LoraSettings(rank=2))
    assert network.encoder.weight.requires_grad
    assert add_lora(network, LoraSettings(rank=2, targets="linear")) == ["encoder"]


def test_a_follows_from_the_seed() -> None:
    first, same, other = (new_network() for _ in range(3))
    for network, seed in ((first, 1), (same, 1), (other, 2)):
        add_lora(network, ALL, seed)
    name = "encoder.attend.linear1.lora_a"
    assert torch.equal(first.get_parameter(name), same.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))


def test_merged_weights_compute_the_same_without_changes() -> None:
    network, plain = with_changes(), new_network()
    inputs = torch.randn(16, *SERIES.shape)
    copied = merged(network)
    assert list(copied.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(merged_weights(network.state_dict(), ALL))
    wanted = network.double()(inputs.double())
    assert not torch.allclose(new_network().double()(inputs.double()), wanted, atol=0.1)
    for found in (copied, plain):
        difference = (found.double()(inputs.double()) - wanted).abs().max() / wanted.abs().max()
        assert difference < 1e-6


def test_a_layer_equals_its_formula() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(8, 5), torch.randn(3, 8)
    network = Network(nn.Identity(), copy.deepcopy(layer), nn.Identity(), nn.Identity())
    add_lora(network, LoraSettings(rank=2, alpha=6.0, targets="linear"))
    encoder = network.encoder
    nn.init.normal_(encoder.lora_b)  # type: ignore[arg-type]
    change = torch.stack([6.0 / 2 * (encoder.lora_b @ (encoder.lora_a @ row)) for row in inputs])
    torch.testing.assert_close(encoder(inputs), layer(inputs) + change)


def injected(encoder: nn.Module, target: str) -> nn.Module:
    """Return an encoder with peft's changes of the layer of that name."""
    import_torchvision()  # peft's imports fail where torchvision's library is for another torch
    peft = import_module("peft")
    settings = peft.LoraConfig(r=2, lora_alpha=6.0, target_modules=[target])
    found: nn.Module = peft.inject_adapter_in_model(settings, copy.deepcopy(encoder))
    return found


def copy_changes(source: nn.Module, target: nn.Module) -> None:
    """Copy a layer's A and B to peft's layer."""
    for ours, theirs in (("lora_a", "lora_A.default.weight"), ("lora_b", "lora_B.default.weight")):
        place = target.get_parameter(theirs)
        place.data.copy_(source.get_parameter(ours).data.view_as(place))


@NEEDS_PEFT
@pytest.mark.parametrize(
    ("layer", "targets", "shape"),
    [
        (nn.Linear(8, 5), "linear", (8,)),
        (nn.Conv1d(4, 6, 3), "convolution", (4, 9)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), "convolution", (4, 9, 7)),
        (nn.Conv3d(2, 3, 2), "convolution", (2, 4, 5, 3)),
    ],
    ids=["linear", "1d", "2d", "3d"],
)
def test_a_layer_equals_pefts(layer: nn.Module, targets: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network, inputs = Network(nn.Identity(), nn.Sequential(layer), nn.Identity(), nn.Identity()), torch.randn(3, *shape)
    wanted = injected(network.encoder, "0")
    add_lora(network, LoraSettings(rank=2, alpha=6.0, targets=targets))
    nn.init.normal_(network.get_parameter("encoder.0.lora_b"))
    copy_changes(network.get_submodule("encoder.0"), wanted.get_submodule("0"))
    torch.testing.assert_close(network.encoder(inputs), wanted(inputs), rtol=1e-4, atol=1e-4)
    wanted.get_submodule("0").merge()  # type: ignore[operator]
    found = merged(network).get_parameter("encoder.0.weight")
    torch.testing.assert_close(found, wanted.get_parameter("0.base_layer.weight"))


@NEEDS_PEFT
def test_attention_equals_pefts() -> None:
    network, inputs = new_network(), torch.randn(3, *SERIES.shape)
    wanted = injected(network.encoder, "self_attn")
    add_lora(network, LoraSettings(rank=2, alpha=6.0))
    layer = network.get_submodule("encoder.attend.self_attn")
    nn.init.normal_(layer.get_parameter("lora_b"))  # out_proj's stays zero: peft 0.21 adds that change twice
    copy_changes(layer, wanted.get_submodule("attend.self_attn"))
    torch.testing.assert_close(network.encoder(inputs), wanted(inputs), rtol=1e-4, atol=1e-4)


def test_means_of_b_are_means_of_changes_only_if_a_is_frozen(new_plan: NewPlan) -> None:
    def relative_error(settings: LoraSettings) -> float:
        network = with_changes(settings)
        plan, names = new_plan(network, "fedavg"), list(exchanged_tensors(network))
        devices = []
        for seed in range(3):
            steps = batches(SERIES, 4, 8, classes=3, seed=seed)
            model = run_round(plan, weights_of(network), steps, hyperparameters(learning_rate=0.5)).model
            devices.append(dict(zip(names, model, strict=True)))
        mean = {name: torch.stack([device[name] for device in devices]).mean(0) for name in names}
        layer = "encoder.attend.linear1"
        products = [device[f"{layer}.lora_b"] @ device[f"{layer}.lora_a"] for device in devices]
        wanted = torch.stack(products).mean(0)
        assert not torch.equal(products[0], products[1])
        return float((mean[f"{layer}.lora_b"] @ mean[f"{layer}.lora_a"] - wanted).norm() / wanted.norm())

    assert relative_error(ALL) < 1e-5
    assert relative_error(LoraSettings(rank=2, alpha=4.0, targets="all", train="both")) > 1e-4


@pytest.mark.slow
def test_changes_are_in_plan_and_graph() -> None:
    recipe = BundleRecipe(name="series", model="changed", input=SERIES, target=class_target(3))
    bundle = build_bundle(recipe, with_changes())
    assert "encoder.attend.self_attn.lora_b" in [spec.name for spec in bundle.manifest.tensors]
    assert "encoder.attend.self_attn.lora_a" in [spec.name for spec in bundle.manifest.frozen]
