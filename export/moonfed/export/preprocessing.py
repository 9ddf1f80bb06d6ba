"""Preprocessing: raw samples to the network's input, in the plan and in the ONNX graph alike.

A single implementation rules out differences between training and serving.
Legend: B samples, H height, W width, C channels, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from moonfed.bundle.manifest import InputSpec
from moonfed.errors import InvalidInput
from moonfed.export.resizing import resized

_WIDTH_NAMES = {"image": "channels", "features": "features", "series": "channels"}


class ImagePreprocessing(torch.nn.Module):
    """Conversion of uint8 pixels [B, H, W, C] to normalised float32 [B, C, H', W'].

    Scaling to [0, 1] and normalisation are one multiplication and one addition: pixels * factor + shift. Both are plain
    tensors, neither parameters nor buffers: they belong to the graph, not to the exchanged state.
    """

    def __init__(self, shape: tuple[int, int, int], mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.height, self.width = resized(shape[0]), resized(shape[1])
        self.resize = (self.height, self.width) != shape[:2]
        means, deviations = (torch.tensor(list(values), dtype=torch.float64) for values in (mean, deviation))
        self.factor = (1 / (255 * deviations)).to(torch.float32)
        self.shift = (-means / deviations).to(torch.float32)

    def forward(self, pixels_BHWC: torch.Tensor, channels_last: bool = False) -> torch.Tensor:
        """Normalise, then resize sides that are too small; `channels_last` selects the result's memory layout."""
        if channels_last:
            # This is the pixels' own layout. Each image is treated as one long row, since broadcasting over channels
            # would make a CPU process three numbers at a time.
            pixels = pixels_BHWC.size(1) * pixels_BHWC.size(2)
            rows = pixels_BHWC.flatten(1).to(torch.float32, copy=True)
            rows = rows.mul_(self.factor.repeat(pixels)).add_(self.shift.repeat(pixels))
            images_BCHW = rows.view(pixels_BHWC.size()).permute(0, 3, 1, 2)
        else:
            images_BCHW = pixels_BHWC.permute(0, 3, 1, 2).contiguous().to(torch.float32)
            images_BCHW = images_BCHW * self.factor.view(-1, 1, 1) + self.shift.view(-1, 1, 1)
        if self.resize:
            size = [self.height, self.width]
            if torch.jit.is_scripting():  # type: ignore[attr-defined]
                # The operator itself: the source of `interpolate` names one that older releases of torch lack.
                images_BCHW = torch.ops.aten.upsample_bilinear2d(images_BCHW, size, False)
            else:  # which the ONNX exporter knows
                images_BCHW = F.interpolate(images_BCHW, size, mode="bilinear", align_corners=False)
        return images_BCHW


class TokenPreprocessing(torch.nn.Module):
    """Tokens [B, T] as they are; the network embeds them."""

    def forward(self, tokens_BT: torch.Tensor, channels_last: bool = False) -> torch.Tensor:
        """Return the tokens."""
        return tokens_BT


class FeaturePreprocessing(torch.nn.Module):
    """Normalisation of float32 features [B, F], or of the channels of series [B, T, F]."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.mean = torch.tensor(list(mean), dtype=torch.float32)
        self.deviation = torch.tensor(list(deviation), dtype=torch.float32)

    def forward(self, features_BF: torch.Tensor, channels_last: bool = False) -> torch.Tensor:
        """Normalise every feature; there are no channels."""
        return (features_BF - self.mean) / self.deviation


def build_preprocessing(
    sample: InputSpec, mean: Sequence[float] | None = None, deviation: Sequence[float] | None = None
) -> torch.nn.Module:
    """Build the preprocessing for a kind of sample.

    `mean`, `deviation`: one per channel (of pixels in [0, 1]) or per feature, or a single one for all; the defaults 0
    and 1 leave the values unchanged. Raises InvalidInput for a wrong number of them or a deviation that is not
    positive.
    """
    if sample.kind == "tokens":
        for name, values in (("mean", mean), ("std", deviation)):
            if values is not None:
                raise InvalidInput(field=name, value=list(values), rest="; tokens have none")
        return TokenPreprocessing()
    width = sample.shape[-1]
    means = _one_each("mean", mean, 0.0, width, _WIDTH_NAMES[sample.kind])
    deviations = _one_each("std", deviation, 1.0, width, _WIDTH_NAMES[sample.kind])
    for value in deviations:
        if not value > 0:
            raise InvalidInput(f"std holds {value!r}; every standard deviation must be positive")
    if sample.kind != "image":
        return FeaturePreprocessing(means, deviations)
    height, image_width, channels = sample.shape
    return ImagePreprocessing((height, image_width, channels), means, deviations)


def preprocessed_shape(sample: InputSpec) -> tuple[int, ...]:
    """Return the shape of one sample after preprocessing."""
    if sample.kind != "image":
        return sample.shape
    height, width, channels = sample.shape
    return channels, resized(height), resized(width)


def _one_each(name: str, values: Sequence[float] | None, default: float, width: int, of: str) -> list[float]:
    if values is None:
        return [default] * width
    if len(values) == 1:
        return [float(values[0])] * width
    if len(values) != width:
        raise InvalidInput(
            f"{name} holds {len(values)} values; it must hold 1 or {width}, one for each of the {of}",
            field=f"number of {name}",
            value=len(values),
        )
    return [float(value) for value in values]
