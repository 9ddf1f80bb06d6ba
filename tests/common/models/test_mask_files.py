"""Masks are written so that a data set's reader finds the same classes in them, and none replaces another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moonfed.data.images import decode_mask
from moonfed.models.mask_files import mask_files, write_mask


@pytest.mark.parametrize("classes", [2, 3, 255])
def test_a_written_mask_is_read_as_the_same_classes(classes: int, tmp_path: Path) -> None:
    expected = np.random.default_rng(classes).integers(0, classes, (6, 9))
    image = tmp_path / "field.png"
    Image.new("RGB", (9, 6)).save(image)
    write_mask(tmp_path / "deep" / "field.mask.png", np.eye(classes, dtype=np.float32)[expected].transpose(2, 0, 1))
    assert (decode_mask(tmp_path / "deep" / "field.mask.png", image, (6, 9)) == expected).all()
    with Image.open(tmp_path / "deep" / "field.mask.png") as found:
        colours = found.getpalette()
    assert colours
    assert len({tuple(colours[3 * place : 3 * place + 3]) for place in range(classes)}) == classes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.jpg"], ["a.mask.png"]),
        (["in/a.jpg", "in/b.png"], ["a.mask.png", "b.mask.png"]),
        (["in/a.jpg", "in/a.png", "in/b.png"], ["a.jpg.mask.png", "a.png.mask.png", "b.mask.png"]),
        (["north/a.jpg", "south/a.jpg"], ["north/a.mask.png", "south/a.mask.png"]),
        (["a.jpg", "more/a.jpg"], ["a.mask.png", "more/a.mask.png"]),
    ],
    ids=["one", "folder", "endings", "folders", "nested"],
)
def test_masks_of_images_keep_their_paths(files: list[str], expected: list[str]) -> None:
    found = mask_files(Path("masks"), files, tuple(map(Path, files)))
    assert found == [Path("masks") / name for name in expected]


def test_masks_of_arrays_have_the_samples_names() -> None:
    found = mask_files(Path("masks"), ["test.npz[0]", "test.npz[1]"])
    assert found == [Path("masks/test.npz[0].mask.png"), Path("masks/test.npz[1].mask.png")]
