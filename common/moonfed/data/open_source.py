"""The source that the text of `--data` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from moonfed.data.folder import FolderSource
from moonfed.data.formats import FOLDER, FUNCTION, NPZ, TABLES, kind_of
from moonfed.data.function import FunctionSource
from moonfed.data.image_folder import check_ignored
from moonfed.data.npz import NpzSource
from moonfed.data.source import Source
from moonfed.data.table import TableSource
from moonfed.errors import InvalidInput

_SOURCES: dict[str, Callable[[str, str], Source]] = {
    NPZ: lambda text, option: NpzSource(Path(text), option),
    FUNCTION: FunctionSource,
}


def open_source(text: str, target: str = "", option: str = "data", ignored_folders: Sequence[str] = ()) -> Source:
    """Return the source that `text` names, see `moonfed.data.formats`; InvalidInput for anything else.

    `target`: the column with the labels, if the table has another one than the bundle names. `option`: the name of the
    text, for messages. `ignored_folders`: names of folders to leave out of a folder of images.
    """
    kind = kind_of(text, option)
    if kind == FOLDER:
        check_ignored(ignored_folders)
    elif ignored_folders:
        raise InvalidInput(
            field="ignore-folder",
            value=ignored_folders[0],
            rest=f"; it applies to folders of images, and {option} is {text!r}",
        )
    if kind in TABLES:
        return TableSource(Path(text), target, option)
    if target:
        raise InvalidInput(
            field="target", value=target, rest=f"; it names a column of a table, and {option} is {text!r}"
        )
    if kind == FOLDER:
        return FolderSource(Path(text), option, ignored_folders)
    return _SOURCES[kind](text, option)
