"""Alternatives to layers that plans do not support."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_WHOLE = "nn.GRU over the whole sequence"
PAGE = "docs/layers.md"

ALTERNATIVES: Mapping[str, str] = MappingProxyType(  # by the name of the layer's class
    {
        "AdaptiveAvgPool3d": "nn.AvgPool3d",
        "AdaptiveLogSoftmaxWithLoss": "nn.Linear and nn.CrossEntropyLoss",
        "CTCLoss": "nn.CrossEntropyLoss of aligned labels",
        "CrossMapLRN2d": "nn.LocalResponseNorm",
        "DataParallel": "the module itself",
        "EmbeddingBag": "nn.Embedding, and the mean of its result",
        "Fold": "nn.ConvTranspose2d",
        "FractionalMaxPool2d": "nn.MaxPool2d or nn.AdaptiveMaxPool2d",
        "FractionalMaxPool3d": "nn.MaxPool3d or nn.AdaptiveMaxPool3d",
        "GRUCell": _WHOLE,
        "GaussianNLLLoss": "its formula, (variance.log() + (h - target) ** 2 / variance).mean() / 2",
        "LSTMCell": _WHOLE,
        "LinearCrossEntropyLoss": "nn.Linear and nn.CrossEntropyLoss",
        "MaxUnpool1d": "nn.Upsample or nn.ConvTranspose1d",
        "MaxUnpool2d": "nn.Upsample or nn.ConvTranspose2d",
        "MaxUnpool3d": "nn.Upsample or nn.ConvTranspose3d",
        "MultiLabelMarginLoss": "nn.MultiLabelSoftMarginLoss",
        "RNN": "nn.GRU",
        "RNNCell": _WHOLE,
        "RReLU": "nn.LeakyReLU",
        "SyncBatchNorm": "nn.BatchNorm2d",
        "TripletMarginWithDistanceLoss": "nn.TripletMarginLoss",
        "Unfold": "nn.Conv2d, whose stride may be its kernel's size, or nn.PixelUnshuffle",
        "_WeightNorm": "nn.LayerNorm, or g * v / v.norm() in a module of your own",
    }
)


def advice(layers: Mapping[str, str]) -> str:
    """Return the end of a sentence that names what to use instead of layers; "" if there is no alternative to any.

    `layers`: the names of their classes, by their paths in the network. A layer within a named one is left out.
    """
    known = {path: layer for path, layer in layers.items() if layer in ALTERNATIVES}
    outer = {layer for path, layer in known.items() if not any(path.startswith(f"{other}.") for other in known)}
    replaced = [f"; instead of {layer.lstrip('_')}, use {ALTERNATIVES[layer]}" for layer in sorted(outer)]
    return "".join([*replaced, f"; see {PAGE}"]) if replaced else ""
