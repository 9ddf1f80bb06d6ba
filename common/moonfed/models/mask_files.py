"""Predicted masks as PNG files, in the form in which `masks/` of a data set has them.

Legend: C classes, H height, W width.
"""

from __future__ import annotations

import colorsys
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.data.images import require_pillow

ENDING = ".mask.png"
_GOLDEN = 0.618034  # of the circle of hues: neighbouring classes differ most
_COLOURS = 256


def mask_files(directory: Path, names: Sequence[str], files: Sequence[Path] = ()) -> list[Path]:
    """Return the file of each sample's mask, no two of them the same.

    Of images (`files`) it has their path below the folder that all share; of other samples, the sample's name.
    """
    if not files:
        return [directory / f"{Path(name).name}{ENDING}" for name in names]
    shared = os.path.commonpath([file.absolute().parent for file in files])
    found = [file.absolute().relative_to(shared) for file in files]
    times = Counter(file.with_suffix("") for file in found)
    return [
        directory / file.with_name(f"{file.stem if times[file.with_suffix('')] == 1 else file.name}{ENDING}")
        for file in found
    ]


def write_mask(file: Path, output: npt.NDArray[Any]) -> None:
    """Write the most probable class of each pixel [C, H, W] as a palette image: its pixels are positions of classes."""
    from PIL import Image

    require_pillow()
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(output.argmax(axis=0).astype(np.uint8))
    image.putpalette(_palette())
    image.save(file)


def _palette() -> bytes:
    """Return colours for people: the first class, often the background, is black."""
    colours = [colorsys.hsv_to_rgb(place * _GOLDEN % 1.0, 0.8, 1.0) for place in range(1, _COLOURS)]
    return bytes(3) + bytes(round(255 * part) for colour in colours for part in colour)
