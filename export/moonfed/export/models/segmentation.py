"""The networks of the zoo for masks of images.

Sources: U-Net: Ronneberger, Fischer, Brox (MICCAI 2015), here with padding, GroupNorm and three levels; LR-ASPP: Howard
et al., Searching for MobileNetV3 (ICCV 2019), section 6.4, as torchvision has it.
Legend: B images, C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models.parts import Parts, resize
from moonfed.export.resizing import resized
from moonfed.export.torchvision_import import import_torchvision

WIDTH = 16  # channels of the first level, doubled at each further one
LEVELS = 3
GROUPS = 8


class PooledBottleneck(nn.Module):
    """The mean of the last features over their pixels, as the representation."""

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return z [B, C]."""
        return features[-1].mean([2, 3])


class OwnSides(nn.Module):
    """Cropping of what was padded, and scaling of images that preprocessing enlarged, to their own sides."""

    def __init__(self, sample: InputSpec) -> None:
        super().__init__()
        self.height, self.width = sample.shape[:2]
        self.inner_height, self.inner_width = resized(self.height), resized(self.width)
        self.enlarged = (self.inner_height, self.inner_width) != (self.height, self.width)

    def forward(self, maps_BCHW: torch.Tensor) -> torch.Tensor:
        """Return maps of the images' sides."""
        inner = maps_BCHW[:, :, : self.inner_height, : self.inner_width]
        return resize(inner, self.height, self.width) if self.enlarged else inner


class UnetEncoder(nn.Module):
    """The contracting path; returns the maps of all levels, the bottleneck's last."""

    def __init__(self, sample: InputSpec) -> None:
        super().__init__()
        step = 2**LEVELS
        self.below, self.right = (-resized(side) % step for side in sample.shape[:2])
        widths = [WIDTH * 2**level for level in range(LEVELS + 1)]
        self.levels = nn.ModuleList(
            _double(inputs, width) for inputs, width in zip([sample.shape[2], *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)

    def forward(self, images_BCHW: torch.Tensor) -> list[torch.Tensor]:
        """Return the maps."""
        maps = F.pad(images_BCHW, [0, self.right, 0, self.below])
        found: list[torch.Tensor] = []
        for level in self.levels:
            maps = level(self.pool(found[-1]) if len(found) > 0 else maps)
            found.append(maps)
        return found


class UnetDecoder(nn.Module):
    """The expanding path, from the bottleneck and the maps of the other levels to logits."""

    def __init__(self, sample: InputSpec, outputs: int) -> None:
        super().__init__()
        widths = [WIDTH * 2**level for level in reversed(range(LEVELS))]
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths)
        self.levels = nn.ModuleList(_double(2 * width, width) for width in widths)
        self.classify = nn.Conv2d(WIDTH, outputs, 1)
        self.own_sides = OwnSides(sample)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return logits [B, classes, H, W]."""
        maps = features[-1]
        place = len(features) - 2
        for up, level in zip(self.up, self.levels):  # noqa: B905 - TorchScript knows no `strict`
            maps = level(torch.cat([features[place], up(maps)], 1))
            place -= 1
        logits: torch.Tensor = self.own_sides(self.classify(maps))
        return logits


def _double(inputs: int, width: int) -> nn.Module:
    """Two convolutions of a level."""
    layers: list[nn.Module] = []
    for channels in (inputs, width):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, width), nn.ReLU()]
    return nn.Sequential(*layers)


def unet(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Parts:
    """Build a U-Net for images of any sides."""
    return UnetEncoder(sample), PooledBottleneck(), UnetDecoder(sample, outputs)


class LowAndHigh(nn.Module):
    """MobileNetV3's features at an eighth and a sixteenth of the image's sides."""

    def __init__(self, low: nn.Module, high: nn.Module) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, images_BCHW: torch.Tensor) -> list[torch.Tensor]:
        """Return both."""
        low = self.low(images_BCHW)
        return [low, self.high(low)]


class LrasppDecoder(nn.Module):
    """The lite reduced atrous spatial pyramid pooling of both features."""

    def __init__(self, head: Any, sample: InputSpec) -> None:  # noqa: ANN401 - torchvision is untyped
        super().__init__()
        self.cbr, self.scale = head.cbr, head.scale
        self.low_classifier, self.high_classifier = head.low_classifier, head.high_classifier
        self.height, self.width = resized(sample.shape[0]), resized(sample.shape[1])
        self.own_sides = OwnSides(sample)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Return logits [B, classes, H, W]."""
        low, high = features[0], features[1]
        scaled = resize(self.cbr(high) * self.scale(high), low.size(2), low.size(3))
        logits = self.low_classifier(low) + self.high_classifier(scaled)
        found: torch.Tensor = self.own_sides(resize(logits, self.height, self.width))
        return found


def lraspp(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Parts:
    """Build torchvision's LR-ASPP with MobileNetV3-Large, for any number of channels."""
    models = import_torchvision().models
    model = models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=outputs)
    layers = list(model.backbone.items())
    if sample.shape[2] != 3:
        first = layers[0][1][0]
        layers[0][1][0] = nn.Conv2d(
            sample.shape[2], first.out_channels, first.kernel_size, first.stride, first.padding, bias=False
        )
        nn.init.kaiming_normal_(layers[0][1][0].weight, mode="fan_out")  # like torchvision
    after_low = 1 + next(
        place for place, (name, _) in enumerate(layers) if model.backbone.return_layers.get(name) == "low"
    )
    low, high = (nn.Sequential(*(layer for _, layer in part)) for part in (layers[:after_low], layers[after_low:]))
    return LowAndHigh(low, high), PooledBottleneck(), LrasppDecoder(model.classifier, sample)
