"""Pretrained weights, and what is known of their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from moonfed.data.images import INTERPOLATION
from moonfed.errors import InvalidInput

Tensors = Mapping[str, torch.Tensor]
Values = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """Mean and standard deviation of each channel that weights expect, of pixels scaled to 0 to 1."""

    mean: Values
    deviation: Values

    def __str__(self) -> str:
        mean, deviation = (",".join(f"{value:g}" for value in values) for values in (self.mean, self.deviation))
        return f"mean {mean} and std {deviation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """The resizing of the images that weights were trained with, as far as their source states it."""

    interpolation: str = ""  # such as "bicubic"
    sides: tuple[int, int] | None = None  # height and width that the network saw
    cropped: bool = False  # to the middle of a larger image

    def difference(self, source: str, shape: tuple[int, ...]) -> str:
        """Return one line that says in what devices' resizing to this shape differs; empty if in nothing."""
        size = tuple(shape[:2])
        resampled = f"{self.interpolation} interpolation"
        stated = [
            *([f"of {_sides(self.sides)}"] if self.sides and self.sides != size else []),
            *([resampled] if self.interpolation and self.interpolation != INTERPOLATION else []),
            *(["cropped to the middle"] if self.cropped else []),
        ]
        done = f"devices resize whole images to {_sides(size)}, with {INTERPOLATION} interpolation"
        return f"{source} was trained with images {', '.join(stated)}; {done}" if stated else ""


def _sides(sides: tuple[int, ...]) -> str:
    return "x".join(map(str, sides))


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedWeights:
    """Tensors by the names that their source gives them, in float32."""

    source: str  # in words, without the directory: "resnet18.pth", "torchvision resnet18 IMAGENET1K_V1"
    sha256: str  # of the file that holds them, or of several, one after the other
    tensors: Tensors
    licence: str = ""  # empty: not stated
    url: str = ""
    normalisation: Normalisation | None = None  # None: not stated
    resizing: Resizing = Resizing()
    tokenizer: Path | None = None  # the tokenizer.json that belongs to them
    renames: Mapping[str, str] = field(default_factory=dict)  # prefixes of names, and what replaces them
    whole: bool = False  # whether a part of the tensors is of no use
    keep_head: bool = False  # whether the source's last layers are loaded, too


def common_normalisation(
    weights: PretrainedWeights, mean: Values | None, deviation: Values | None
) -> tuple[Values | None, Values | None]:
    """Return the given mean and deviation, or where there are none, those that the weights expect.

    Raises InvalidInput if the given ones differ from those, with which the weights would see other samples than those
    they were trained on.
    """
    expected = weights.normalisation
    if expected is None:
        return mean, deviation
    for name, given, wanted in (("mean", mean, expected.mean), ("std", deviation, expected.deviation)):
        same = given is None or given == wanted or (len(given) == 1 and set(given) == set(wanted))
        if not same:
            value, allowed = (",".join(f"{number:g}" for number in numbers) for numbers in (given or (), wanted))
            raise InvalidInput(
                f"{name} is {value}; {weights.source} was trained with {allowed}; give no {name}, to use that",
                field=name,
                value=value,
                allowed=allowed,
            )
    return expected.mean, expected.deviation


def float_tensors(tensors: Tensors, source: str) -> dict[str, torch.Tensor]:
    """Return the floating-point tensors in float32; raise InvalidInput if there is none, or one is not finite."""
    found = {name: tensor.to(torch.float32) for name, tensor in tensors.items() if tensor.is_floating_point()}
    if not found:
        raise InvalidInput(field="weights", value=source, rest=", which holds no floating-point tensor")
    for name, tensor in found.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidInput(
                field="weights", value=source, rest=f", whose tensor {name!r} holds numbers that are not finite"
            )
    return found
