"""The targets of a folder's images besides classes: masks, rows of a table, or `good` and other folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.target import UNKNOWN, TargetSpec
from moonfed.data.bad_cells import BadCells, Cell, UnusableData
from moonfed.data.flaws import Flaw
from moonfed.data.image_folder import ImageFolder
from moonfed.data.images import decode_mask
from moonfed.data.spelling import composed
from moonfed.data.table import require_columns
from moonfed.data.table_cells import as_text, read_flags, read_numbers
from moonfed.data.table_reader import read_batches, read_header
from moonfed.errors import InvalidInput
from moonfed.files import require_file

IMAGES, MASKS, GOOD = "images", "masks", "good"  # folders
FILE = "file"  # the column that names an image
NO_MASK = Flaw("has no mask and is ignored", "have no mask and are ignored", "image")
NO_IMAGE = Flaw("belongs to no image and is ignored", "belong to no image and are ignored", "mask")
NO_ROW = Flaw("is in no row of the table and is ignored", "are in no row of the table and are ignored", "image")


def holds_targets(folder: Path, target: TargetSpec) -> bool:
    """Return whether a folder says more than which images there are: masks, a table, or which are `good`."""
    table = (IMAGES, f"{target.noun}.csv")
    parts = {"mask": (IMAGES, MASKS), "labels": table, "values": table, "none": (GOOD,)}.get(target.kind, ())
    return bool(parts) and all((folder / part).exists() for part in parts)


def anomalies(images: ImageFolder, files: Sequence[Path]) -> Mapping[Path, int | None]:
    """Return 0 for files in `good`, 1 for those in other folders, UNKNOWN for others; None each without `good`."""
    tops = {file: file.relative_to(images.path).parts[:-1] for file in files}
    known = any(top[:1] == (GOOD,) for top in tops.values())
    return {file: (UNKNOWN if not top else int(top[0] != GOOD)) if known else None for file, top in tops.items()}


def mask_files(images: ImageFolder, files: Sequence[Path]) -> Mapping[Path, Path]:
    """Return the images that have a mask, which has the same path without the ending, with it."""
    folder = images.path / MASKS
    if not folder.is_dir():
        raise InvalidInput(
            f"{str(images.path)!r} has no folder {MASKS!r}; it needs {IMAGES}/NAME.jpg and {MASKS}/NAME.png",
            field="data",
        )
    masks = {_stem(file, folder): file for file in images.files(folder)}
    stems = {_stem(file, images.path / IMAGES): file for file in files}
    for stem, file in stems.items():
        if stem not in masks:
            images.flaws.add(NO_MASK, file)
    for stem, file in masks.items():
        if stem not in stems:
            images.flaws.add(NO_IMAGE, file)
    return {file: masks[stem] for stem, file in stems.items() if stem in masks}


def _stem(file: Path, folder: Path) -> str:
    return composed(str(file.relative_to(folder).with_suffix("")))


def read_mask(mask: Path, image: Path, target: TargetSpec) -> npt.NDArray[np.uint8]:
    """Return the mask of an image; raise UnusableImage for one that is damaged, UnusableData for one that is wrong."""
    found = decode_mask(mask, image, target.shape)
    _require_classes(found, mask, target)
    return found


def _require_classes(mask: npt.NDArray[np.uint8], file: Path, target: TargetSpec) -> None:
    others = mask[(mask >= len(target.names)) & (mask != UNKNOWN)]
    if len(others):
        allowed = f"it must be 0 to {len(target.names) - 1}, or {UNKNOWN} for what is ignored"
        raise UnusableData(
            f"{file} has a pixel of class {others[0]}; {allowed}", f"a mask has a pixel of class {others[0]}; {allowed}"
        )


def listed_targets(images: ImageFolder, files: Sequence[Path], target: TargetSpec) -> Mapping[Path, Any]:
    """Return the targets of the images that the rows of labels.csv or values.csv name in their column `file`."""
    path = images.path / f"{target.noun}.csv"
    require_file("targets", path)
    require_columns(path, read_header(path), [FILE, *target.names], ", which the task needs")
    read, bad = (read_flags if target.kind == "labels" else read_numbers), BadCells(path)
    known = {composed(str(file.relative_to(images.path / IMAGES))): file for file in files}
    found = dict[Path, Any]()
    for batch in read_batches(path, [FILE, *target.names], []):
        names = [composed(name or "") for name in as_text(batch.columns[FILE], bad.place(FILE)).to_pylist()]
        columns = [read(batch, name, place, bad) for place, name in enumerate(target.names, start=1)]
        for index, (name, values) in enumerate(zip(names, np.stack(columns, axis=1), strict=True)):
            file = known.get(name.removeprefix(f"{IMAGES}/"))
            if file is None or file in found:
                problem = f"is no file in {IMAGES}" if file is None else "is in two rows"
                cell = Cell(int(batch.rows[index]), 0, FILE, name, problem)
                bad.add([index], lambda _, cell=cell: cell)  # type: ignore[misc]
            else:
                found[file] = values
    bad.require_none()
    for file in files:
        if file not in found:
            images.flaws.add(NO_ROW, file)
    return {file: found[file] for file in files if file in found}
