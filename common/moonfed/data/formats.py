"""The formats of `--data`, by the text that names it. The device's agent imports this, so it needs no numpy."""

from __future__ import annotations

from pathlib import Path

from moonfed.errors import InvalidInput, NotFound

NPZ = "npz"
CSV = "csv"
PARQUET = "parquet"
FOLDER = "folder"
FUNCTION = "function"
TABLES = (CSV, PARQUET)
SUFFIXES = {".npz": NPZ, ".csv": CSV, ".parquet": PARQUET}
METAVAR = "FOLDER|FILE|module:callable"  # on command lines
TARGET_HELP = "The column of a table with the labels. Default: the bundle's target."
IGNORE_FOLDER_HELP = "Leave out folders of this name in a folder of images, at any depth; repeatable."
HELP = "a folder of images by class, a .npz, .csv or .parquet file, or module:callable"


def find_kind(text: str) -> str | None:
    """Return the format that the text names: one of those above; None if it names none."""
    path = Path(text)
    if path.suffix.lower() in SUFFIXES and not path.is_dir():
        return SUFFIXES[path.suffix.lower()]
    if path.is_dir():
        return PARQUET if _holds_parquet(path) else FOLDER
    module, colon, name = text.partition(":")
    return FUNCTION if colon and all(part.isidentifier() for part in [*module.split("."), name]) else None


def kind_of(text: str, name: str = "data") -> str:
    """Return the format that the text names; InvalidInput or NotFound, naming the option, if it names none."""
    try:
        kind = find_kind(text)
    except OSError as error:  # the folder that it is in may not be read
        raise InvalidInput(field=name, value=text, rest=f", which cannot be read: {error.strerror}") from error
    if kind is None and ":" not in text and not Path(text).exists():
        raise NotFound(field=name, value=text, rest=f"; there is no such file or folder; it must be {HELP}")
    if kind is None:
        raise InvalidInput(field=name, value=text, allowed=HELP)
    return kind


def _holds_parquet(folder: Path) -> bool:
    """Return whether a folder is one table, as Spark and others write it."""
    if folder.suffix.lower() == ".parquet":
        return True
    try:
        shown = [path for path in folder.iterdir() if not path.name.startswith((".", "_"))]
    except OSError:  # reading the folder gives the reason
        return False
    return bool(shown) and all(path.suffix == ".parquet" for path in shown)
