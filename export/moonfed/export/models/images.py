"""The networks of the zoo for images as a whole.

cnn, heads and sizes follow Li, He, Song (CVPR 2021), section 4.1, and where the paper is silent, its authors' public
code: ResNets with a 3x3 stem and without the first max-pool, as is usual for 32x32 pixels. GroupNorm instead of
BatchNorm, whose statistics suffer when devices' data differ: Hsieh, Phanishayee, Mutlu, Gibbons (ICML 2020).
"""

from __future__ import annotations

import warnings

import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.export.models.parts import Encoder
from moonfed.export.resizing import resized
from moonfed.export.torchvision_import import import_torchvision

GROUPS = 32  # of channels: Wu, He, Group Normalization (ECCV 2018)
WITH_AUXILIARIES = ("googlenet", "inception_v3")  # outputs in the middle of the network, for training


def cnn(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder:
    """Build the paper's CNN for any image size: 92,626 parameters with head and output for 32x32x3 and ten classes."""
    height, width = (_after_pooling(resized(side)) for side in sample.shape[:2])
    encoder = nn.Sequential(
        nn.Conv2d(sample.shape[2], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return encoder, 84


def _after_pooling(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2


def resnet(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder:
    """Build a ResNet for small images: a 3x3 stem with stride 1, no first max-pool."""
    options = {"norm_layer": _group_norm} if name.endswith("-gn") else {}
    encoder = getattr(import_torchvision().models, name.removesuffix("-gn"))(weights=None, **options)
    encoder.conv1 = nn.Conv2d(sample.shape[2], 64, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(encoder.conv1.weight, mode="fan_out", nonlinearity="relu")  # like torchvision
    encoder.maxpool = nn.Identity()
    width = encoder.fc.in_features
    encoder.fc = nn.Identity()
    return encoder, width


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels)


class MainOutput(nn.Module):
    """A classifier of torchvision's that has auxiliary outputs, without them."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        classifier.forward = classifier._forward  # type: ignore[assignment]  # which returns a plain tuple
        self.classifier = classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the main output."""
        found: torch.Tensor = self.classifier(images)[0]
        return found


def torchvision_classifier(name: str, sample: InputSpec) -> Encoder:
    """Build a torchvision classifier without its last linear layer; the bundle's build checks whether it works."""
    if sample.shape[2] != 3:
        raise InvalidInput(f"input has {sample.shape[2]} channels; torchvision's classifiers need 3")
    models = import_torchvision().models
    allowed = models.list_models(module=models)
    if name not in allowed:
        raise InvalidInput(
            field="model", value="torchvision:" + name, rest=f"; torchvision's names are {', '.join(allowed)}"
        )
    with warnings.catch_warnings():
        # from googlenet and inception_v3; the weights follow from our seed either way
        warnings.filterwarnings("ignore", "The default weight initialization of", FutureWarning)
        options: dict[str, object] = {"aux_logits": False} if name in WITH_AUXILIARIES else {}
        if name.startswith("vit_"):
            options["image_size"] = _side_in_patches(name, sample)
        encoder = models.get_model(name, weights=None, **options)
    last, layer = [each for each in encoder.named_modules() if isinstance(each[1], nn.Linear | nn.Conv2d)][-1]
    width = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels  # SqueezeNet's is a convolution
    parent, _, child = last.rpartition(".")
    setattr(encoder.get_submodule(parent), child, nn.Identity())
    return MainOutput(encoder) if name in WITH_AUXILIARIES else encoder, width


def _side_in_patches(name: str, sample: InputSpec) -> int:
    """Return the side of the square images that a vision transformer divides into patches."""
    height, width = (resized(side) for side in sample.shape[:2])
    patch = int(name.rpartition("_")[2])
    if height != width or height % patch:
        raise InvalidInput(
            f"input has images of {height}x{width}; torchvision:{name} needs squares whose side is a multiple of "
            f"{patch}",
            field="input",
            value=f"{height}x{width}",
            allowed=f"squares whose side is a multiple of {patch}",
        )
    return height
