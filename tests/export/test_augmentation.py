"""Augmentation, compared with numpy image by image and with torchvision's transforms."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.export.augmentation import build_augmentation
from moonfed.export.torchvision_import import import_torchvision
from tests.export.conftest import FEATURES, IMAGE
from tests.support.refusals import refused

Pixels = npt.NDArray[np.uint8]
WIDE = InputSpec(kind="image", shape=(5, 12, 1))  # the smallest side that can be mirrored
BEFORE_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
DRAWS = {"crop-flip": 3, "crop-flip-rotate": 4}


def augmentation(name: str, sample: InputSpec = IMAGE) -> torch.nn.Module:
    found = build_augmentation(name, sample)
    assert found is not None
    return found


def pictures(sample: InputSpec, count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, *sample.shape), generator=generator, dtype=torch.uint8)  # 0 is outside


def drawn(count: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, width, generator=torch.Generator().manual_seed(seed))


def offset(draw: float) -> int:
    return math.floor(draw * 9) - 4


def cropped_and_flipped(picture: Pixels, draws: list[float], mode: str) -> Pixels:
    padded = np.pad(picture, ((4, 4), (4, 4), (0, 0)), mode)  # type: ignore[call-overload]
    height, width = picture.shape[:2]
    top, left = offset(draws[0]) + 4, offset(draws[1]) + 4
    crop: Pixels = padded[top : top + height, left : left + width]
    return crop[:, ::-1] if draws[2] < 0.5 else crop


def turned(picture: Pixels, degrees: float) -> tuple[Pixels, npt.NDArray[np.bool_]]:
    """Rotate the image counter-clockwise; also return where rounding is ambiguous."""
    height, width = picture.shape[:2]
    result, doubtful = np.zeros_like(picture), np.zeros((height, width), dtype=bool)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for row in range(height):
        for column in range(width):
            y, x = row - (height - 1) / 2, column - (width - 1) / 2
            from_row = y * cosine + x * sine + (height - 1) / 2
            from_column = x * cosine - y * sine + (width - 1) / 2
            doubtful[row, column] = any(abs(place % 1 - 0.5) < 1e-4 for place in (from_row, from_column))
            if -0.5 < from_row < height - 0.5 and -0.5 < from_column < width - 0.5:
                result[row, column] = picture[round(from_row), round(from_column)]
    return result, doubtful


@pytest.mark.parametrize("sample", [IMAGE, WIDE])
def test_crop_flip_matches_numpy(sample: InputSpec) -> None:
    before, draws = pictures(sample, 50), drawn(50, 3)
    after = augmentation("crop-flip", sample)(before, draws).numpy()
    for index, numbers in enumerate(draws.tolist()):
        assert np.array_equal(after[index], cropped_and_flipped(before[index].numpy(), numbers, "reflect")), numbers


@pytest.mark.parametrize("sample", [IMAGE, WIDE])
def test_crop_flip_rotate_matches_numpy(sample: InputSpec) -> None:
    before, draws = pictures(sample, 50), drawn(50, 4)
    after, sure = augmentation("crop-flip-rotate", sample)(before, draws).numpy(), 0
    for index, numbers in enumerate(draws.tolist()):
        flat = cropped_and_flipped(before[index].numpy(), numbers, "constant")
        expected, doubtful = turned(flat, 15 * (2 * numbers[3] - 1))
        assert np.array_equal(after[index][~doubtful], expected[~doubtful]), numbers
        sure += (~doubtful).sum()
    assert sure > 0.99 * before[..., 0].numel()


@pytest.mark.parametrize(("name", "mode"), [("crop-flip", "reflect"), ("crop-flip-rotate", "constant")])
def test_images_match_torchvision(name: str, mode: str) -> None:
    import_torchvision()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as tv

    before, draws = pictures(IMAGE, 50, seed=1), drawn(50, DRAWS[name], seed=1)
    after = augmentation(name)(before, draws)
    different = 0
    for index, numbers in enumerate(draws.tolist()):
        padded = tv.pad(before[index].permute(2, 0, 1), [4], padding_mode=mode)
        expected = tv.crop(padded, offset(numbers[0]) + 4, offset(numbers[1]) + 4, 32, 32)
        expected = tv.hflip(expected) if numbers[2] < 0.5 else expected
        if name == "crop-flip-rotate":
            expected = tv.rotate(expected, 15 * (2 * numbers[3] - 1), InterpolationMode.NEAREST)
        different += int((after[index] != expected.permute(1, 2, 0)).any(dim=2).sum())
    assert different <= 3  # of 51,200 pixels, where float32 rounds to the other side of a half


def test_extreme_draws_give_extreme_images() -> None:
    before = pictures(IMAGE, 1)
    plain = [4.5 / 9, 4.5 / 9, 0.5]  # no shift, no flip
    crop_flip, rotate = augmentation("crop-flip"), augmentation("crop-flip-rotate")
    assert torch.equal(crop_flip(before, torch.tensor([plain])), before)
    assert torch.equal(rotate(before, torch.tensor([[*plain, 0.5]])), before)
    right_below = torch.tensor([[BEFORE_ONE, BEFORE_ONE, BEFORE_ONE]])
    assert torch.equal(crop_flip(before, right_below)[0, :28, :28], before[0, 4:, 4:])
    left_above = torch.tensor([[0.0, 0.0, 0.0, 0.5]])
    expected = torch.zeros_like(before)
    expected[0, 4:, :28] = before[0, :28, :28].flip(1)
    assert torch.equal(rotate(before, left_above), expected)
    clockwise, counter = (rotate(before, torch.tensor([[*plain, draw]]))[0] for draw in (0.0, BEFORE_ONE))
    first, doubtful = turned(before[0].numpy(), -15)
    second, also = turned(before[0].numpy(), 15)
    sure = ~(doubtful | also)
    assert np.array_equal(clockwise.numpy()[sure], first[sure])
    assert np.array_equal(counter.numpy()[sure], second[sure])


def test_all_81_crops_are_equally_likely() -> None:
    steps = (torch.arange(45) + 0.5) / 45
    draws = torch.cartesian_prod(steps, steps)
    row, column = torch.meshgrid(torch.arange(40), torch.arange(40), indexing="ij")
    numbered = torch.stack([row + 100, column + 100], dim=2).to(torch.uint8).expand(len(draws), 40, 40, 2)
    after = augmentation("crop-flip")(numbered, torch.cat([draws, torch.ones(len(draws), 1)], dim=1))
    middle, counts = after[:, 20, 20].long() - 120, torch.zeros(9, 9)
    for dy, dx in middle.tolist():
        counts[dy + 4, dx + 4] += 1
    assert torch.equal(counts, torch.full((9, 9), 25.0))


@pytest.mark.parametrize("name", ["crop-flip", "crop-flip-rotate"])
def test_scripted_equals_eager_and_the_input_is_not_modified(name: str) -> None:
    module, before, draws = augmentation(name), pictures(IMAGE, 64), drawn(64, DRAWS[name])
    kept = before.clone()
    assert module.draws == DRAWS[name]
    assert torch.equal(torch.jit.script(module)(before, draws), module(before, draws))
    assert torch.equal(before, kept)
    assert torch.equal(module(before[5:6], draws[5:6]), module(before, draws)[5:6])


def test_unsupported_augmentations_are_rejected() -> None:
    assert build_augmentation("none", FEATURES) is None
    with refused(InvalidInput, "augmentation", "mixup"):
        build_augmentation("mixup", IMAGE)
    with refused(InvalidInput, "augmentation", "crop-flip"):
        build_augmentation("crop-flip", FEATURES)
    with refused(InvalidInput, "augmentation", "crop-flip"):
        build_augmentation("crop-flip", InputSpec(kind="image", shape=(4, 8, 1)))
    assert build_augmentation("crop-flip-rotate", InputSpec(kind="image", shape=(4, 8, 1))) is not None


@pytest.mark.parametrize("name", ["crop-flip", "crop-flip-rotate"])
def test_a_mask_moves_with_its_image(name: str) -> None:
    sample = InputSpec(kind="image", shape=(20, 24, 2))
    augmentation = build_augmentation(name, sample, TargetSpec(kind="mask", names=("a", "b"), shape=(20, 24)))
    assert augmentation is not None
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randint(1, 255, (40, 20, 24, 2), generator=generator, dtype=torch.uint8)
    draws = torch.rand(40, int(augmentation.draws), generator=generator)  # type: ignore[arg-type]
    masks = augmentation.targets(pixels[..., 1], draws)  # type: ignore[operator]
    moved = augmentation(pixels, draws)[..., 1]
    inside = moved != 0  # pixels that were added are black, and ignored
    assert torch.equal(masks[inside], moved[inside])
    assert (masks[~inside] == 255).all()
    assert not torch.equal(masks, pixels[..., 1])
    assert bool((~inside).any()) == (name == "crop-flip-rotate")
