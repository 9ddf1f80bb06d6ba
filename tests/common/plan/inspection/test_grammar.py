"""The grammar accepts what torch's printer writes for torch's own layers, and for a user's modules."""

from __future__ import annotations

import enum
from collections import namedtuple
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.interface import quiet_torchscript
from tests.support.attack_plans import archive_of

LAYERS: dict[str, Callable[[], nn.Module]] = {
    **{name: getattr(nn, name) for name in dir(nn) if name in (
        "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU",
        "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax",
        "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Flatten", "Dropout", "Dropout1d",
        "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "CosineSimilarity", "PairwiseDistance",
        "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "CTCLoss", "HingeEmbeddingLoss",
        "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
        "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
        "TripletMarginLoss", "CosineEmbeddingLoss", "Softmax2d",
    )},
    **{f"{name}{dimensions}d": partial(getattr(nn, f"{name}{dimensions}d"), *arguments)
       for names, arguments in (
           (("BatchNorm", "InstanceNorm"), (4,)),
           (("Conv", "ConvTranspose"), (4, 4, 3)),
           (("AvgPool", "MaxPool", "AdaptiveAvgPool", "AdaptiveMaxPool"), (2,)),
           (("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad"), (2,)),
       )
       for name in names for dimensions in (1, 2, 3)},
    "Bilinear": lambda: nn.Bilinear(2, 3, 4),
    "Embedding": lambda: nn.Embedding(4, 3),
    "EmbeddingBag": lambda: nn.EmbeddingBag(4, 3),
    "Fold": lambda: nn.Fold((4, 4), 2),
    "GLU": nn.GLU,
    "GRU": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "GRUCell": lambda: nn.GRUCell(3, 4),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "LSTM": lambda: nn.LSTM(3, 4),
    "LSTMCell": lambda: nn.LSTMCell(3, 4),
    "LayerNorm": lambda: nn.LayerNorm([4]),
    "Linear": lambda: nn.Linear(3, 4),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(2),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2),
    "PixelShuffle": lambda: nn.PixelShuffle(2),
    "RMSNorm": lambda: nn.RMSNorm([4]),
    "RNN": lambda: nn.RNN(3, 4),
    "RNNCell": lambda: nn.RNNCell(3, 4),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2),
    "Unfold": lambda: nn.Unfold(2),
    "Upsample": lambda: nn.Upsample(scale_factor=2.0, mode="bicubic"),
    "ParameterList": lambda: nn.ParameterList([nn.Parameter(torch.zeros(2))]),
}  # fmt: skip


def require_printed(module: nn.Module) -> None:
    """Require each line of the module's source to be accepted; whether its operators are is another matter."""
    reason = ""
    try:
        inspect_archive(archive_of(module))
    except UnsafePlan as error:
        reason = str(error)
    assert not reason or "the plan uses the operator" in reason


@pytest.mark.parametrize("name", LAYERS)
def test_the_source_of_torchs_layers_is_accepted(name: str) -> None:
    require_printed(LAYERS[name]())


class Color(enum.Enum):
    red = 1
    green = 2


Point = namedtuple("Point", ["x", "y"])


class Users(nn.Module):
    """A module with what users write."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({"first-layer": nn.Linear(2, 2), "it's": nn.ReLU()})
        self.sizes = [(1, 0.5), (2, -1e-12)]
        self.color = Color.red
        self.text, self.large, self.infinite = 'quote "\\ \n tab\t é', 1e300, float("-inf")

    def pick(self, color: Color, numbers: dict[str, int]) -> int:
        if color == Color.green or color.value == 2:
            return numbers["a"]
        return -1 if len(numbers) > 3 else numbers.get("b", 7)

    def forward(self, inputs: torch.Tensor, scale: float | None = None) -> tuple[Point, list[int], str]:
        for name, block in self.blocks.items():
            inputs = block(inputs)
            assert name != "", "no name"
        x, y = inputs.shape[0], inputs[..., 1:]
        total = 0
        while total < 5:
            total += 1
            if total == 3:
                continue
            if total > 4:
                break
        found = [each * 2 for each in range(total)]
        try_scale = 1.0 if scale is None else scale
        text = f"{x} {try_scale}" if isinstance(scale, float) else "none"
        value, index = inputs.max(dim=0)
        values: list[float] = value.tolist()
        result = Point(x=inputs, y=y + value * try_scale + sum(values))
        found.append(self.pick(self.color, {"a": total, "b": int(index[0])}))
        return result, found, text.replace("n", "é")


def test_the_source_of_a_users_module_is_accepted() -> None:
    require_printed(Users())


def test_a_name_that_the_printer_cannot_quote_is_refused_in_one_sentence() -> None:
    module = nn.ModuleDict({'a"b': nn.ReLU()})
    with quiet_torchscript(), pytest.raises(UnsafePlan, match="a quote that is not closed"):
        inspect_archive(archive_of(module))
