"""Partitioning of a user's own samples over devices, in their own format: rows of tables, files of images, arrays."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.data.data_set import DataSet, Rows
from moonfed.data.flaws import UnusableImage
from moonfed.data.folder import class_files
from moonfed.data.formats import CSV, FOLDER, PARQUET
from moonfed.data.images import inspect_image, require_pillow
from moonfed.data.source import report
from moonfed.data.table_reader import open_parquet
from moonfed.errors import InvalidInput
from moonfed.experiments.group import group_by, read_names
from moonfed.experiments.own_data import OwnData
from moonfed.experiments.partition import (
    PartitionSettings,
    WrittenPartition,
    class_counts,
    count_samples,
    partition,
    save_npz,
    split,
)
from moonfed.experiments.strata import every_fifth, stratum_names, stratum_word, train_and_test
from moonfed.export.table_description import write_description

COLUMNS_FILE = "columns.json"
LONGEST_CELL = 1 << 20  # characters; pyarrow, which has read the cells before, permits no longer rows
SUFFIXES = {CSV: ".csv", PARQUET: ".parquet", FOLDER: ""}  # others: .npz
_Destinations = Mapping[Path, Rows]  # the samples of each part


def partition_own_data(data: OwnData, settings: PartitionSettings, directory: Path, by: str = "") -> WrittenPartition:
    """Write device-1 … device-N, test, and partition.json; for tables columns.json, too.

    Every fifth sample of every class is for testing. `by`: a column of a table, each value of which is a device, in
    alphabetical order; of `settings` nothing applies then. Raises InvalidInput for a directory that holds another
    split.
    """
    names = read_names(Path(data.text), by) if by else ()
    files, labels = list[tuple[Path, int]](), np.zeros(0, np.int64)
    if data.kind == FOLDER:
        _require_classes(data)
        classes = data.class_names()
        files = _images(data, classes)
        labels = np.array([label for _, label in files], np.int64)
        samples, test = None, np.flatnonzero(every_fifth(labels))
        train = np.setdiff1d(np.arange(len(labels)), test)
    else:
        samples = data.read()
        classes, (train, test) = stratum_names(samples.target), train_and_test(samples)
        if samples.windows is not None and samples.rows is not None and not by:
            raise InvalidInput(
                f"by is missing; samples of {data.text} are windows of rows, which stay together: it must name a "
                "column, each value of which is a device",
                field="by",
            )
    if samples is None:
        by_device = partition(labels[train], settings)
    elif by:
        by_device = group_by(Path(data.text), by, train if samples.rows is None else samples.rows[train])
    else:
        by_device = split(samples.take(train), settings)
    parts = [train[part] for part in by_device]
    suffix = SUFFIXES.get(data.kind, ".npz")
    devices = tuple(directory / f"device-{number}{suffix}" for number in range(1, len(parts) + 1))
    _require_ours(directory, [*devices, directory / f"test{suffix}"])
    destinations = dict(zip([*devices, directory / f"test{suffix}"], [*parts, test], strict=True))
    directory.mkdir(parents=True, exist_ok=True)
    if samples is None:
        _copy_images(Path(data.text), [file for file, _ in files], destinations)
    else:
        _write_samples(data, samples, destinations)
    written = WrittenPartition(
        classes=classes,
        counts=class_counts(labels, parts, len(classes)) if samples is None else count_samples(samples, parts),
        devices=devices,
        test=directory / f"test{suffix}",
        tested=len(test),
        groups="class" if samples is None else stratum_word(samples.target),
    )
    _describe(directory, data, {"by": by, "values": list(names)} if by else asdict(settings), written)
    return written


def _require_classes(data: OwnData) -> None:
    if not data.has_classes:
        rest = (
            f"; folders are split for classification alone: {data.text!r} must be an .npz file, a table or a function"
        )
        raise InvalidInput(field="task", value=data.task, rest=rest)


def _images(data: OwnData, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the images of a folder with their classes; count and log what is left out, or used only in part."""
    require_pillow()
    folder, images = data.images(), list[tuple[Path, int]]()
    files = class_files(folder, classes)
    for file, label in files:
        try:
            flaws = inspect_image(file)
        except UnusableImage as error:
            folder.flaws.add(error.flaw, file, error.detail)
            continue
        for flaw in flaws:
            folder.flaws.add(flaw, file)
        images.append((file, label))
    report(tuple(folder.flaws.sentences(len(files), data.text)))
    return images


def _require_ours(directory: Path, parts: Sequence[Path]) -> None:
    found = sorted(path for pattern in ("device-*", "test", "test.*") for path in directory.glob(pattern))
    if others := [path for path in found if path not in parts or path.is_dir()]:
        raise InvalidInput(
            field="output",
            value=directory,
            rest=f", which holds {others[0].name} of another split; name a new directory",
        )


def _write_samples(data: OwnData, samples: DataSet, destinations: _Destinations) -> None:
    if samples.rows is None:
        for path, indices in destinations.items():
            save_npz(path, samples.take(indices))
        return
    last = samples.rows.max() if samples.windows is None else samples.windows.order.max()
    owner = np.full(int(last) + 1, -1, np.int64)  # the part of each row, by its number
    for part, indices in enumerate(destinations.values()):
        rows = samples.rows[indices] if samples.windows is None else samples.windows.take(indices).covered
        if (owner[rows] >= 0).any():
            raise InvalidInput(
                f"windows of {data.text} have rows of several devices; name the column of the devices, or one within "
                "each device, with `moonfed-export columns --group`",
                field="group",
            )
        owner[rows] = part
    write = _write_csv if data.kind == CSV else _write_parquet
    write(Path(data.text), owner, list(destinations))


def _write_csv(source: Path, owner: npt.NDArray[np.int64], parts: Sequence[Path]) -> None:
    """Write each row, with all of its columns, to its part; the text of cells is unchanged."""
    csv.field_size_limit(LONGEST_CELL)
    with ExitStack() as stack:
        rows = csv.reader(stack.enter_context(source.open(encoding="utf-8-sig", newline="")))
        opened = [stack.enter_context(part.open("w", encoding="utf-8", newline="")) for part in parts]
        writers = [csv.writer(file, lineterminator="\n") for file in opened]
        for number, row in enumerate(rows, start=1):
            if number == 1:
                for writer in writers:
                    writer.writerow(row)
            elif number < len(owner) and owner[number] >= 0:
                writers[owner[number]].writerow(row)


def _write_parquet(source: Path, owner: npt.NDArray[np.int64], parts: Sequence[Path]) -> None:
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        file = stack.enter_context(open_parquet(source))
        writers = [stack.enter_context(pq.ParquetWriter(part, file.schema)) for part in parts]
        start = 1
        for batch in file.batches(None):
            owners = owner[start : start + len(batch)]
            for part, writer in enumerate(writers):
                writer.write_batch(batch.take(np.flatnonzero(owners == part)))
            start += len(batch)


def _copy_images(source: Path, files: Sequence[Path], destinations: _Destinations) -> None:
    for path, indices in destinations.items():
        for index in indices:
            target = path / files[index].relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(files[index], target)


def _describe(directory: Path, data: OwnData, settings: Mapping[str, Any], written: WrittenPartition) -> None:
    description: dict[str, Any] = {
        "dataset": data.text,
        "settings": settings,
        **written.describe(),
    }
    (directory / "partition.json").write_text(json.dumps(description, indent=1) + "\n")
    if data.kind in (CSV, PARQUET):
        write_description(directory / COLUMNS_FILE, data.describe_table())
