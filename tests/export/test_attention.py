"""torch's layers of attention in plans and graphs: the same state, results and gradients, by reviewed operators."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.attention import replace_attention
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.preprocessing import build_preprocessing
from tests.export.conftest import NewPlan, hyperparameters
from tests.support.eager_reference import weights_of
from tests.support.plan_rounds import run_round
from tests.support.refusals import refused

WIDTH, LENGTH, ROWS = 8, 6, 3
CAUSAL = torch.ones(LENGTH, LENGTH).triu(1) > 0
PADDING = torch.arange(LENGTH) >= torch.tensor([[6], [4], [2]])
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of its own layers


def compare(layer: nn.Module, *inputs: torch.Tensor, **masks: Any) -> None:
    """Compare a layer with its scripted replacement, in both modes; torch's own evaluates without fused operators."""
    replaced = copy.deepcopy(layer)
    replace_attention(replaced)
    assert type(replaced) is not type(layer)
    assert list(replaced.state_dict()) == list(layer.state_dict())
    scripted = torch.jit.script(replaced)
    for training in (True, False):
        found = []
        for each in (layer.train(training), scripted.train(training)):
            torch.manual_seed(1)  # of dropout
            results = each(*inputs, **masks)
            outputs = results[0] if isinstance(results, tuple) else results
            gradients = torch.autograd.grad(outputs.square().sum(), [*each.parameters()])
            found.append([results, *gradients])
        torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        pytest.param({}, {}, id="plain"),
        pytest.param({"batch_first": True, "dropout": 0.5}, {"need_weights": False}, id="dropout"),
        pytest.param({"batch_first": True}, {"attn_mask": CAUSAL, "key_padding_mask": PADDING}, id="masks"),
        pytest.param(
            {"kdim": WIDTH, "vdim": 5, "bias": False, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
            {"average_attn_weights": False},
            id="every-option",
        ),
    ],
)
def test_attention_equals_torchs(options: dict[str, Any], masks: dict[str, Any]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(ROWS, LENGTH, WIDTH)
    compare(
        nn.MultiheadAttention(WIDTH, 2, **options), inputs, inputs.flip(0), inputs[..., : options.get("vdim")], **masks
    )


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        pytest.param({}, {"src_key_padding_mask": PADDING}, id="padding"),
        pytest.param({"norm_first": True, "activation": "gelu"}, {"mask": CAUSAL, "is_causal": True}, id="causal"),
    ],
)
def test_an_encoder_equals_torchs(options: dict[str, Any], masks: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, **options)
    compare(nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH)), torch.randn(ROWS, LENGTH, WIDTH), **masks)


def test_a_decoder_equals_torchs() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(WIDTH, 2, 16, batch_first=True)
    inputs = torch.randn(ROWS, LENGTH, WIDTH)
    compare(nn.TransformerDecoder(layer, 1, nn.LayerNorm(WIDTH)), inputs, inputs.flip(0), tgt_mask=CAUSAL)


def test_a_derived_class_is_the_users() -> None:
    class Mine(nn.MultiheadAttention):
        pass

    layer = Mine(WIDTH, 2)
    replace_attention(layer)
    assert type(layer) is Mine


class Patches(nn.Module):
    """A vision transformer of 8x8 numbers in patches of 2x2, of torch's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 2, stride=2)
        self.positions = nn.Parameter(0.02 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(16), persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        patches = self.patches(rows.view(-1, 1, 8, 8)).flatten(2).transpose(1, 2)
        found: torch.Tensor = self.layers(patches + self.positions, mask=self.mask).mean(1)
        return found


DIGITS = InputSpec(kind="features", shape=(64,))


def vision_transformer() -> Network:
    torch.manual_seed(0)
    return Network(build_preprocessing(DIGITS, [8.0], [6.0]), Patches(), nn.Identity(), nn.Linear(32, 10))


def test_a_vision_transformer_learns_digits(new_plan: NewPlan) -> None:
    found = load_digits()
    inputs, labels = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target)
    network = vision_transformer()
    plan = new_plan(network, "fedavg")
    order = torch.arange(6 * 1400).remainder(1400).view(-1, 50)
    steps = [(inputs[rows], labels[rows]) for rows in order]
    trained = run_round(plan, weights_of(network), steps, hyperparameters(learning_rate=0.05))
    assert trained.losses[0] > 2.0
    correct = plan.evaluate(inputs[1400:], labels[1400:])[1]
    assert correct / 397 > 0.4  # by chance: 0.1


@pytest.mark.slow
def test_a_masked_encoder_is_built_with_its_graph() -> None:
    recipe = BundleRecipe(name="digits", model="patches", input=DIGITS, target=class_target(10))
    bundle = build_bundle(recipe, vision_transformer())
    assert "encoder.layers.layers.1.self_attn.in_proj_weight" in {spec.name for spec in bundle.manifest.tensors}


def test_torchvisions_vision_transformers_take_squares_of_patches() -> None:
    def network(height: int, width: int) -> Network:
        return build_network("torchvision:vit_b_32", InputSpec(kind="image", shape=(height, width, 3)), class_target(2))

    with torch.device("meta"):  # without values, which would take seconds
        accepted = network(64, 64)
    assert accepted.get_parameter("encoder.encoder.pos_embedding").shape == (1, 5, 768)
    for height, width in ((64, 96), (48, 48)):
        with refused(InvalidInput, "input", f"{height}x{width}", "squares whose side is a multiple of 32"):
            network(height, width)
