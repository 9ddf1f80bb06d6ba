"""Augmentation: raw pictures to raw pictures, inside the plan, before preprocessing; training alone sees it.

Chance comes in from outside, as R numbers per picture, uniform in [0, 1): the same draws give the same picture. Crop,
flip and rotation together say which pixel of the original each new pixel is, so one gather does all of it.
Source: the public code of MOON's authors, for CIFAR-10 and CIFAR-100.
Legend: B pictures, H height, W width, C channels, R draws: dy, dx, flip[, angle].
"""

from __future__ import annotations

import math

import torch

from moonfed.errors import InvalidInput
from moonfed.manifest import InputSpec

PADDING = 4  # pixels on each side, of which a crop of the picture's own size is taken
LARGEST_ANGLE = 15.0  # degrees, either way
AUGMENTATIONS = ("none", "crop-flip", "crop-flip-rotate")


class CropFlip(torch.nn.Module):
    """Mirrors 4 pixels of border outwards, takes a random crop of the old size, flips every second picture."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 3

    def forward(self, pixels_BHWC: torch.Tensor, draws_BR: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Pixels [B, H, W, C] with draws [B, R]."""
        height, width, device = pixels_BHWC.size(1), pixels_BHWC.size(2), pixels_BHWC.device
        rows_BH = torch.arange(height, device=device) + offsets(draws_BR[:, :1])  # noqa: N806
        columns_BW = flipped(torch.arange(width, device=device).unsqueeze(0), draws_BR[:, 2:3], width)  # noqa: N806
        columns_BW = columns_BW + offsets(draws_BR[:, 1:2])  # noqa: N806
        rows_BH, columns_BW = reflected(rows_BH, height), reflected(columns_BW, width)  # noqa: N806
        places_BHW = in_batch(rows_BH.unsqueeze(2) * width + columns_BW.unsqueeze(1), height * width)  # noqa: N806
        return pixels_BHWC.flatten(0, 2).index_select(0, places_BHW.flatten()).view(pixels_BHWC.size())


class CropFlipRotate(torch.nn.Module):
    """Random crop of a picture padded with 4 black pixels, random flip, then a rotation of up to 15 degrees.

    Rotation about the centre takes the nearest pixel; what comes from outside is black.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws = 4

    def forward(self, pixels_BHWC: torch.Tensor, draws_BR: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Pixels [B, H, W, C] with draws [B, R]."""
        height, width = pixels_BHWC.size(1), pixels_BHWC.size(2)
        # coordinates are whole numbers in float32, in which arithmetic on a CPU is three times as fast as in int64
        down, right, flip = offsets(draws_BR[:, 0]).float(), offsets(draws_BR[:, 1]).float(), draws_BR[:, 2] < 0.5
        rows, columns = rotated(height, width, draws_BR[:, 3])  # of the crop, which the rotation turns
        inside = within(rows, height, down) & within(columns, width, torch.where(flip, -right, right))
        rows = rows + down.view(-1, 1, 1)
        first, step = torch.where(flip, width - 1 + right, right), torch.where(flip, -1.0, 1.0)
        columns = first.view(-1, 1, 1) + step.view(-1, 1, 1) * columns
        places_BHW = torch.where(inside, rows * width + columns, float(height * width))  # noqa: N806
        # each picture gets one more pixel, which is black
        table = torch.nn.functional.pad(pixels_BHWC.flatten(1, 2), [0, 0, 0, 1]).flatten(0, 1)
        places = in_batch(places_BHW, height * width + 1).flatten()
        return table.index_select(0, places).view(pixels_BHWC.size())


def build_augmentation(name: str, sample: InputSpec) -> torch.nn.Module | None:
    """The augmentation of that name, with the number of its draws as `draws`; None for `none`.

    Raises InvalidInput for an unknown name, for features, and for pictures too small to mirror their borders.
    """
    if name not in AUGMENTATIONS:
        raise InvalidInput(f"augmentation is {name!r}; it must be one of {', '.join(AUGMENTATIONS)}")
    if name == "none":
        return None
    if sample.kind != "image":
        raise InvalidInput(f"augmentation is {name!r} and input.kind {sample.kind!r}; it needs 'image'")
    if name == "crop-flip-rotate":
        return CropFlipRotate()
    if min(sample.shape[:2]) <= PADDING:
        raise InvalidInput(f"augmentation is {name!r}; it needs sides of at least {PADDING + 1} pixels")
    return CropFlip()


def offsets(draws: torch.Tensor, padding: int = PADDING) -> torch.Tensor:  # a script sees no global number
    """Whole numbers from -4 to 4, all as likely; a draw so near to 1 that the product is rounded up counts as 4."""
    return (draws * (2 * padding + 1)).long().clamp(max=2 * padding) - padding


def flipped(columns: torch.Tensor, draws: torch.Tensor, width: int) -> torch.Tensor:
    """The columns counted from the right where the draw is below one half."""
    return torch.where(draws < 0.5, width - 1 - columns, columns)


def reflected(places: torch.Tensor, size: int) -> torch.Tensor:
    """Places outside [0, size) mirrored at its first and last pixel."""
    return size - 1 - (size - 1 - places.abs()).abs()


def within(places_BHW: torch.Tensor, size: int, offset_B: torch.Tensor) -> torch.Tensor:  # noqa: N803
    """Which places are in [0, size), and still are after the offset."""
    least, most = (-offset_B).clamp(min=0).view(-1, 1, 1), (size - 1 - offset_B).clamp(max=size - 1).view(-1, 1, 1)
    return (places_BHW >= least) & (places_BHW <= most)


def in_batch(places_BHW: torch.Tensor, pixels: int) -> torch.Tensor:  # noqa: N803
    """Places in each picture as places in the batch's pixels."""
    firsts_B = torch.arange(places_BHW.size(0), device=places_BHW.device, dtype=torch.int32) * pixels  # noqa: N806
    return places_BHW.int() + firsts_B.view(-1, 1, 1)


def rotated(
    height: int,
    width: int,
    draws_B: torch.Tensor,  # noqa: N803
    largest_angle: float = LARGEST_ANGLE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column [B, H, W] that each pixel comes from; a draw above one half turns counter-clockwise."""
    angles = ((2.0 * draws_B - 1.0) * (largest_angle * math.pi / 180.0)).view(-1, 1, 1)
    cosine, sine = torch.cos(angles), torch.sin(angles)
    middle_row, middle_column = (height - 1) / 2.0, (width - 1) / 2.0
    y = torch.arange(height, device=draws_B.device).view(1, -1, 1) - middle_row
    x = torch.arange(width, device=draws_B.device).view(1, 1, -1) - middle_column
    rows = torch.round(sine * x + cosine * y + middle_row)
    columns = torch.round(cosine * x - sine * y + middle_column)
    return rows, columns
