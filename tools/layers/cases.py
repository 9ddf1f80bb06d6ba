"""A use of each layer of torch.nn in a network or a loss: its arguments, the shape of a sample, and its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

CLASSES = 3
WIDTH = 8  # of a loss's representation


class Use(nn.Module):
    """A way to call a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer


class Pair(Use):
    """A layer of two inputs."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Call it with one input, and with another."""
        found: torch.Tensor = self.layer(h, h.flip(-1))
        return found


class First(Use):
    """A layer that returns a tuple, of which the first part is its result."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        found: torch.Tensor = self.layer(h)[0]
        return found


class Attention(Use):
    """A layer of queries, keys and values."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Let the input attend to itself."""
        found: torch.Tensor = self.layer(h, h, h)[0]
        return found


class Indexed(Use):
    """A layer of indices."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Look up numbers from 0 to 3."""
        found: torch.Tensor = self.layer(h.abs().clamp(max=3.0).to(torch.int64))
        return found


class Unpooled(nn.Module):
    """A layer that inverts max-pooling."""

    def __init__(self, layer: nn.Module, pool: nn.Module) -> None:
        super().__init__()
        self.layer, self.pool = layer, pool

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool, and invert it."""
        pooled, indices = self.pool(h)
        found: torch.Tensor = self.layer(pooled, indices)
        return found


class Listed(nn.Module):
    """A list of layers."""

    def __init__(self, layer: nn.ModuleList) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Apply one after the other."""
        for each in self.layer:
            h = each(h)
        return h


class Named(nn.Module):
    """Layers by name."""

    def __init__(self, layer: nn.ModuleDict) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Apply one after the other."""
        for each in self.layer.values():
            h = each(h)
        return h


class Scaled(nn.Module):
    """A list of parameters."""

    def __init__(self, layer: nn.ParameterList) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Multiply by each."""
        for each in self.layer:
            h = h * each
        return h


class NamedScales(nn.Module):
    """Parameters by name."""

    def __init__(self, layer: nn.ParameterDict) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Multiply by one."""
        found: torch.Tensor = h * self.layer["scale"]
        return found


class ClassLoss(Use):
    """A loss of scores and labels."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Call it with log-probabilities."""
        found: torch.Tensor = self.layer(torch.log_softmax(logits, 1), labels)
        return found


class HiddenLoss(Use):
    """A loss with an output layer of its own."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Call it with the representation."""
        found: torch.Tensor = self.layer(z, labels)
        return found


class HiddenPairLoss(Use):
    """A loss with an output layer of its own, which returns its output, too."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Call it with the representation."""
        found: torch.Tensor = self.layer(z, labels)[1]
        return found


class ElementLoss(Use):
    """A loss of probabilities and numbers between 0 and 1."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compare with the labels as vectors."""
        wanted = (torch.arange(logits.size(1), device=logits.device) == labels.unsqueeze(1)).to(logits.dtype)
        found: torch.Tensor = self.layer(logits.sigmoid(), wanted)
        return found


class IndexLoss(Use):
    """A loss of scores and lists of labels."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Call it with a list of one label for each sample."""
        found: torch.Tensor = self.layer(
            logits, torch.cat([labels.unsqueeze(1), torch.full_like(logits, -1.0).long()[:, 1:]], 1)
        )
        return found


class VarianceLoss(Use):
    """A loss of numbers and their variances."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compare with zeros."""
        found: torch.Tensor = self.layer(logits, torch.zeros_like(logits), torch.ones_like(logits))
        return found


class PairLoss(Use):
    """A loss of two representations and a sign."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compare the representations of neighbours."""
        found: torch.Tensor = self.layer(z, z.flip(0), torch.ones_like(z[:, 0]))
        return found


class RankLoss(Use):
    """A loss of two scores and a sign."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compare the scores of two classes."""
        found: torch.Tensor = self.layer(logits[:, 0], logits[:, 1], torch.ones_like(logits[:, 0]))
        return found


class TripletLoss(Use):
    """A loss of three representations."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compare the representations of neighbours."""
        found: torch.Tensor = self.layer(z, z.flip(0), z.roll(1, 0))
        return found


class SequenceLoss(Use):
    """A loss of sequences of labels."""

    def forward(self, logits: torch.Tensor, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Call it with the batch as one sequence, which has one label."""
        steps = torch.log_softmax(logits, 1).unsqueeze(1)
        one = torch.ones([1], dtype=torch.int64, device=logits.device)
        found: torch.Tensor = self.layer(steps, one.unsqueeze(0), one * logits.size(0), one)
        return found


@dataclass(frozen=True)
class Case:
    """A layer in a network, or in an objective if it is a loss."""

    arguments: tuple[Any, ...] = ()
    shape: tuple[int, ...] = (WIDTH,)  # of a sample
    use: Callable[..., nn.Module] | None = None  # its call; None: one tensor to another
    options: Mapping[str, Any] = field(default_factory=dict)

    def module(self, name: str) -> nn.Module:
        """Return a module that uses the layer: of a batch of samples, or of logits, representations and labels."""
        layer = getattr(nn, name)(*(_made(each) for each in self.arguments), **dict(self.options))
        return layer if self.use is None else self.use(layer)


def case(
    *arguments: Any,
    shape: tuple[int, ...] = (WIDTH,),
    use: Callable[..., nn.Module] | None = None,
    **options: Any,
) -> Case:
    """Return a case; functions among the arguments are called whenever the layer is made."""
    return Case(arguments, shape, use, options)


def _made(argument: Any) -> Any:
    return argument() if callable(argument) else argument


LINE, IMAGE, VOLUME, SEQUENCE = (4, 8), (4, 8, 8), (4, 8, 8, 8), (5, 8)


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def _decoder_layer() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)


def _dimensions(name: str, *arguments: Any, first: int = 1, last: int = 3, **options: Any) -> dict[str, Case]:
    """Return the cases of a layer for 1, 2 and 3 dimensions."""
    shapes = {1: LINE, 2: IMAGE, 3: VOLUME}
    return {f"{name}{number}d": case(*arguments, shape=shapes[number], **options) for number in range(first, last + 1)}


CASES: Mapping[str, Mapping[str, Case]] = {
    "Linear layers": {
        "Identity": case(),
        "Linear": case(8, 4),
        "Bilinear": case(8, 8, 4, use=Pair),
        "LazyLinear": case(4),
    },
    "Convolutions": {
        **_dimensions("Conv", 4, 4, 3),
        **_dimensions("ConvTranspose", 4, 4, 3),
        **_dimensions("LazyConv", 4, 3),
        **_dimensions("LazyConvTranspose", 4, 3),
        "Fold": case((4, 4), 2, shape=(8, 9)),
        "Unfold": case(2, shape=IMAGE),
    },
    "Pooling": {
        **_dimensions("MaxPool", 2),
        **_dimensions("AvgPool", 2),
        **_dimensions("AdaptiveMaxPool", 2),
        **_dimensions("AdaptiveAvgPool", 2),
        **_dimensions("FractionalMaxPool", 2, first=2, output_size=3),
        **_dimensions("LPPool", 2, 2),
        "MaxUnpool1d": case(2, shape=LINE, use=lambda layer: Unpooled(layer, nn.MaxPool1d(2, return_indices=True))),
        "MaxUnpool2d": case(2, shape=IMAGE, use=lambda layer: Unpooled(layer, nn.MaxPool2d(2, return_indices=True))),
        "MaxUnpool3d": case(2, shape=VOLUME, use=lambda layer: Unpooled(layer, nn.MaxPool3d(2, return_indices=True))),
    },
    "Padding": {
        **_dimensions("CircularPad", 1),
        **_dimensions("ConstantPad", 1, 0.5),
        **_dimensions("ReflectionPad", 1),
        **_dimensions("ReplicationPad", 1),
        **_dimensions("ZeroPad", 1),
    },
    "Normalisation": {
        **_dimensions("BatchNorm", 4),
        **_dimensions("LazyBatchNorm"),
        **_dimensions("InstanceNorm", 4, affine=True),
        **_dimensions("LazyInstanceNorm", affine=True),
        "GroupNorm": case(2, 4, shape=IMAGE),
        "LayerNorm": case(8),
        "RMSNorm": case(8),
        "LocalResponseNorm": case(2, shape=IMAGE),
        "CrossMapLRN2d": case(2, shape=IMAGE),
        "SyncBatchNorm": case(4, shape=IMAGE),
    },
    "Activations": {
        **{name: case() for name in (
            "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
            "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus",
            "Softshrink", "Softsign", "Tanh", "Tanhshrink",
        )},
        "LogSoftmax": case(1),
        "Softmax": case(1),
        "Softmin": case(1),
        "Softmax2d": case(shape=IMAGE),
        "Threshold": case(0.1, 0.0),
    },
    "Dropout": {
        "Dropout": case(),
        **_dimensions("Dropout"),
        "AlphaDropout": case(),
        "FeatureAlphaDropout": case(shape=IMAGE),
    },
    "Embeddings, recurrent layers and attention": {
        "Embedding": case(4, 3, use=Indexed),
        "EmbeddingBag": case(4, 3, use=Indexed),
        "GRU": case(8, 4, shape=SEQUENCE, use=First, batch_first=True),
        "LSTM": case(8, 4, shape=SEQUENCE, use=First, batch_first=True),
        "RNN": case(8, 4, shape=SEQUENCE, use=First, batch_first=True),
        "GRUCell": case(8, 4),
        "LSTMCell": case(8, 4, use=First),
        "RNNCell": case(8, 4),
        "MultiheadAttention": case(8, 2, shape=SEQUENCE, use=Attention, batch_first=True),
        "TransformerEncoderLayer": case(8, 2, 16, shape=SEQUENCE, batch_first=True),
        "TransformerEncoder": case(_encoder_layer, 1, shape=SEQUENCE),
        "TransformerDecoderLayer": case(8, 2, 16, shape=SEQUENCE, use=Pair, batch_first=True),
        "TransformerDecoder": case(_decoder_layer, 1, shape=SEQUENCE, use=Pair),
        "Transformer": case(8, 2, 1, 1, 16, shape=SEQUENCE, use=Pair, batch_first=True),
    },
    "Shapes and sizes": {
        "Flatten": case(shape=IMAGE),
        "Unflatten": case(1, (2, 4)),
        "ChannelShuffle": case(2, shape=IMAGE),
        "PixelShuffle": case(2, shape=IMAGE),
        "PixelUnshuffle": case(2, shape=IMAGE),
        "Upsample": case(scale_factor=2, mode="bilinear", shape=IMAGE),
        "UpsamplingBilinear2d": case(scale_factor=2, shape=IMAGE),
        "UpsamplingNearest2d": case(scale_factor=2, shape=IMAGE),
        "CosineSimilarity": case(shape=SEQUENCE, use=Pair),
        "PairwiseDistance": case(shape=SEQUENCE, use=Pair),
    },
    "Containers": {
        "Sequential": case(nn.ReLU, nn.Tanh),
        "ModuleList": case(lambda: [nn.ReLU(), nn.Tanh()], use=Listed),
        "ModuleDict": case(lambda: {"one": nn.ReLU(), "other": nn.Tanh()}, use=Named),
        "ParameterList": case(lambda: [nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))], use=Scaled),
        "ParameterDict": case(lambda: {"scale": nn.Parameter(torch.ones(8))}, use=NamedScales),
        "DataParallel": case(nn.ReLU),
    },
}  # fmt: skip

LOSSES: Mapping[str, Case] = {
    "AdaptiveLogSoftmaxWithLoss": case(WIDTH, CLASSES, [1], use=HiddenPairLoss),
    "BCELoss": case(use=ElementLoss),
    "BCEWithLogitsLoss": case(use=ElementLoss),
    "CTCLoss": case(use=SequenceLoss),
    "CosineEmbeddingLoss": case(use=PairLoss),
    "CrossEntropyLoss": case(use=ClassLoss),
    "GaussianNLLLoss": case(use=VarianceLoss),
    "HingeEmbeddingLoss": case(use=ElementLoss),
    "HuberLoss": case(use=ElementLoss),
    "KLDivLoss": case(use=ElementLoss, reduction="batchmean"),
    "L1Loss": case(use=ElementLoss),
    "LinearCrossEntropyLoss": case(WIDTH, CLASSES, use=HiddenLoss),
    "MSELoss": case(use=ElementLoss),
    "MarginRankingLoss": case(use=RankLoss),
    "MultiLabelMarginLoss": case(use=IndexLoss),
    "MultiLabelSoftMarginLoss": case(use=ElementLoss),
    "MultiMarginLoss": case(use=ClassLoss),
    "NLLLoss": case(use=ClassLoss),
    "NLLLoss2d": case(use=ClassLoss),
    "PoissonNLLLoss": case(use=ElementLoss),
    "SmoothL1Loss": case(use=ElementLoss),
    "SoftMarginLoss": case(use=ElementLoss),
    "TripletMarginLoss": case(use=TripletLoss),
    "TripletMarginWithDistanceLoss": case(use=TripletLoss),
}

BASES = frozenset({"Container", "Module", "RNNBase", "RNNCellBase"})  # classes that others are derived from


def layers() -> frozenset[str]:
    """Return the names of all public layers of torch.nn."""
    return frozenset(
        name
        for name, found in vars(nn).items()
        if not name.startswith("_") and isinstance(found, type) and issubclass(found, nn.Module)
    )
