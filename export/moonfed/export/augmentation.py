"""Image augmentation inside the plan: raw images to raw images, before preprocessing and only in training.

Randomness is an input: R numbers per image, uniform in [0, 1), so the same draws give the same image. Crop, flip and
rotation together map each new pixel to one pixel of the original, so a single gather performs all of them.
Source: the public code of MOON's authors, for CIFAR-10 and CIFAR-100.
Legend: B images, H height, W width, C channels, R draws: dy, dx, flip[, angle].
"""

from __future__ import annotations

import math

import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, TargetSpec
from moonfed.errors import InvalidInput

PADDING = 4  # pixels on each side before cropping to the original size
LARGEST_ANGLE = 15.0  # degrees, in either direction
AUGMENTATIONS = ("none", "crop-flip", "crop-flip-rotate")


class NoAugmentation(torch.nn.Module):
    """No augmentation, with the common interface: `draws`, `forward` and `targets`."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 0

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the raw samples [B, …] unchanged; `draws` [B, 0]."""
        return inputs

    def targets(self, targets: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the raw targets as augmented samples have them; here unchanged."""
        return targets


class MaskAugmentation(torch.nn.Module):
    """The augmentation of images together with their masks, whose pixels from outside are ignored."""

    def __init__(self, augmentation: NoAugmentation) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.draws = augmentation.draws

    def forward(self, inputs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment pixels [B, H, W, C] with draws [B, R]."""
        augmented: torch.Tensor = self.augmentation(inputs, draws)
        return augmented

    def targets(self, targets: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment masks [B, H, W] in the same way: what is added has the value 0, so the masks are moved by one."""
        moved = (targets + 1).unsqueeze(3)  # uint8: 255, which is ignored, becomes 0
        augmented: torch.Tensor = self.augmentation(moved, draws)
        return augmented.squeeze(3) - 1


class CropFlip(NoAugmentation):
    """Reflection padding by 4 pixels, a random crop of the original size, and a flip with probability 1/2."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 3

    def forward(self, pixels_BHWC: torch.Tensor, draws_BR: torch.Tensor) -> torch.Tensor:
        """Augment pixels [B, H, W, C] with draws [B, R]."""
        height = pixels_BHWC.size(1)
        width = pixels_BHWC.size(2)
        device = pixels_BHWC.device
        rows_BH = torch.arange(height, device=device) + offsets(draws_BR[:, :1])
        columns_BW = flipped(torch.arange(width, device=device).unsqueeze(0), draws_BR[:, 2:3], width)
        columns_BW = columns_BW + offsets(draws_BR[:, 1:2])
        rows_BH, columns_BW = reflected(rows_BH, height), reflected(columns_BW, width)
        places_BHW = in_batch(rows_BH.unsqueeze(2) * width + columns_BW.unsqueeze(1), height * width)
        return pixels_BHWC.flatten(0, 2).index_select(0, places_BHW.flatten()).view(pixels_BHWC.size())


class CropFlipRotate(NoAugmentation):
    """A random crop of an image padded with 4 black pixels, a random flip, then a rotation by up to 15 degrees.

    The rotation about the centre uses the nearest pixel; pixels from outside are black.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws = 4

    def forward(self, pixels_BHWC: torch.Tensor, draws_BR: torch.Tensor) -> torch.Tensor:
        """Augment pixels [B, H, W, C] with draws [B, R]."""
        height, width = pixels_BHWC.size(1), pixels_BHWC.size(2)
        # coordinates are integers stored as float32, in which CPU arithmetic is three times as fast as in int64
        down = offsets(draws_BR[:, 0]).float()
        right = offsets(draws_BR[:, 1]).float()
        flip = draws_BR[:, 2] < 0.5
        rows, columns = rotated(height, width, draws_BR[:, 3])  # in the crop, which is what gets rotated
        inside = within(rows, height, down) & within(columns, width, torch.where(flip, -right, right))
        rows = rows + down.view(-1, 1, 1)
        first, step = torch.where(flip, width - 1 + right, right), torch.where(flip, -1.0, 1.0)
        columns = first.view(-1, 1, 1) + step.view(-1, 1, 1) * columns
        places_BHW = torch.where(inside, rows * width + columns, float(height * width))
        # append one black pixel to each image
        table = torch.nn.functional.pad(pixels_BHWC.flatten(1, 2), [0, 0, 0, 1]).flatten(0, 1)
        places = in_batch(places_BHW, height * width + 1).flatten()
        return table.index_select(0, places).view(pixels_BHWC.size())


def build_augmentation(name: str, sample: InputSpec, target: TargetSpec = NO_TARGET) -> torch.nn.Module | None:
    """Build the augmentation of that name, whose `draws` is the R above; return None for `none`.

    Raises InvalidInput for an unknown name, for features, and for images too small to reflect their borders.
    """
    if name not in AUGMENTATIONS:
        raise InvalidInput(f"augmentation is {name!r}; it must be one of {', '.join(AUGMENTATIONS)}")
    if name == "none":
        return None
    if sample.kind != "image":
        raise InvalidInput(f"augmentation is {name!r} and input.kind {sample.kind!r}; it needs 'image'")
    if name == "crop-flip" and min(sample.shape[:2]) <= PADDING:
        raise InvalidInput(f"augmentation is {name!r}; it needs sides of at least {PADDING + 1} pixels")
    augmentation = CropFlip() if name == "crop-flip" else CropFlipRotate()
    return MaskAugmentation(augmentation) if target.kind == "mask" else augmentation


def offsets(draws: torch.Tensor, padding: int = PADDING) -> torch.Tensor:  # TorchScript reads no globals
    """Return integers from -4 to 4, equally likely; a draw so close to 1 that the product rounds up counts as 4."""
    return (draws * (2 * padding + 1)).long().clamp(max=2 * padding) - padding


def flipped(columns: torch.Tensor, draws: torch.Tensor, width: int) -> torch.Tensor:
    """Count the columns from the right where the draw is below 1/2."""
    return torch.where(draws < 0.5, width - 1 - columns, columns)


def reflected(places: torch.Tensor, size: int) -> torch.Tensor:
    """Reflect positions outside [0, size) at the first and last pixel."""
    return size - 1 - (size - 1 - places.abs()).abs()


def within(places_BHW: torch.Tensor, size: int, offset_B: torch.Tensor) -> torch.Tensor:
    """Return a mask of the positions in [0, size) both before and after the offset."""
    least, most = (-offset_B).clamp(min=0).view(-1, 1, 1), (size - 1 - offset_B).clamp(max=size - 1).view(-1, 1, 1)
    return (places_BHW >= least) & (places_BHW <= most)


def in_batch(places_BHW: torch.Tensor, pixels: int) -> torch.Tensor:
    """Convert positions within each image to positions within the batch's pixels."""
    firsts_B = torch.arange(places_BHW.size(0), device=places_BHW.device, dtype=torch.int32) * pixels
    return places_BHW.int() + firsts_B.view(-1, 1, 1)


def rotated(
    height: int,
    width: int,
    draws_B: torch.Tensor,
    largest_angle: float = LARGEST_ANGLE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the source row and column [B, H, W] of each pixel; a draw above 1/2 rotates counter-clockwise."""
    angles = ((2.0 * draws_B - 1.0) * (largest_angle * math.pi / 180.0)).view(-1, 1, 1)
    cosine, sine = torch.cos(angles), torch.sin(angles)
    middle_row, middle_column = (height - 1) / 2.0, (width - 1) / 2.0
    y = torch.arange(height, device=draws_B.device).view(1, -1, 1) - middle_row
    x = torch.arange(width, device=draws_B.device).view(1, 1, -1) - middle_column
    rows = torch.round(sine * x + cosine * y + middle_row)
    columns = torch.round(cosine * x - sine * y + middle_column)
    return rows, columns
