"""The classes and images in a folder; what is left out is counted. Needs no numpy.

Ignored: hidden entries, those that systems create, and folders that `--ignore-folder` names. Links are followed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from moonfed.data.flaws import Flaw, Flaws
from moonfed.data.spelling import composed
from moonfed.errors import InvalidInput

# Names, in lower case, of what network storage, Windows, macOS and ext4 create in users' folders.
SYSTEM_NAMES = frozenset({
    "@eadir", "@recently-snapshot", "@recycle", "@tmp", "#recycle", "#snapshot",
    "$recycle.bin", "recycler", "system volume information",
    "__macosx", "network trash folder", "temporary items",
    "lost+found",
})  # fmt: skip
UNREADABLE = Flaw("cannot be read and is ignored", "cannot be read and are ignored", "folder")
REPEATED = Flaw("is a link to what is read elsewhere, or to a folder above it, and is not followed",
                "are links to what is read elsewhere, or to folders above them, and are not followed",
                "folder")  # fmt: skip
BROKEN = Flaw("leads nowhere and is ignored", "lead nowhere and are ignored", "link")
LOOSE = Flaw("lies beside the class folders and is ignored", "lie beside the class folders and are ignored", "file")


class ImageFolder:
    """A folder of images, which may hold class folders; `flaws` counts what its methods have left out."""

    def __init__(self, path: Path, ignored: Collection[str] = ()) -> None:
        """`ignored`: names of folders."""
        self.path, self.flaws = path, Flaws()
        self._ignored = frozenset(map(composed, ignored))
        self._classes: dict[Path, Path] = {}  # the class folders without links

    def classes(self) -> list[Path]:
        """Return the class folders, sorted. Raises OSError if this folder cannot be read."""
        root, folders = _without_links(self.path), dict[Path, Path]()
        claimed = {root, *root.parents}
        for entry in sorted(self._entries(self.path), key=lambda entry: entry.is_symlink()):
            path = self.path / entry.name
            real = _without_links(path) if entry.is_symlink() else root / entry.name
            if not _is_folder(entry):
                self.flaws.add(BROKEN if entry.is_symlink() and not path.exists() else LOOSE, path)
            elif real in claimed:
                self.flaws.add(REPEATED, path)
            else:
                claimed.add(real)
                folders[path] = real
        self._classes = folders
        return sorted(folders)

    def loose(self) -> list[Path]:
        """Return the files beside the class folders, sorted. Raises OSError if this folder cannot be read."""
        return [self.path / entry.name for entry in self._entries(self.path) if not _is_folder(entry)]

    def require_readable(self, folder: Path) -> None:
        """Raise OSError if this user may not read a folder."""
        if not os.access(folder, os.R_OK | os.X_OK):  # without X its files can be listed, but not opened
            folder.stat()  # which may give the reason
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    def files(self, top: Path) -> Iterator[Path]:
        """Yield all files below this folder or one of its classes in a deterministic order.

        Each folder is read once, whatever leads to it. Raises OSError if `top` itself cannot be read.
        """
        root, real = _without_links(self.path), _without_links(top)
        seen = {root, *root.parents, *self._classes.values()} - {real}
        yield from self._walk(top, self._entries(top), real, seen)

    def _walk(self, folder: Path, entries: list[os.DirEntry[str]], real: Path, seen: set[Path]) -> Iterator[Path]:
        """`real`: the folder without links; `seen`: such paths of folders that are not to be read."""
        seen.add(real)
        folders = []
        for entry in entries:
            if _is_folder(entry):
                folders.append(entry)
            else:
                yield folder / entry.name
        for entry in sorted(folders, key=lambda entry: entry.is_symlink()):  # what is here comes before links to it
            path = folder / entry.name
            target = _without_links(path) if entry.is_symlink() else real / entry.name
            if target in seen:
                self.flaws.add(REPEATED, path)
                continue
            try:
                below = self._entries(path)
            except OSError as error:
                self.flaws.add(UNREADABLE, path, error.strerror or "")
                continue
            yield from self._walk(path, below, target, seen)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the entries that count, sorted by name."""
        self.require_readable(folder)
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not self._is_ignored(entry)]
        return sorted(entries, key=lambda entry: entry.name)

    def _is_ignored(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if name.startswith(".") or name.lower() in SYSTEM_NAMES:
            return True
        return composed(name) in self._ignored and _is_folder(entry)


def check_ignored(names: Collection[str]) -> None:
    """Raise InvalidInput for a name that no folder can have."""
    for name in names:
        if name in ("", ".", "..") or "/" in name:
            raise InvalidInput(field="ignore-folder", value=name, allowed="a folder's name, without a path")


def _without_links(path: Path) -> Path:
    """Return where a path leads; unlike `Path.resolve`, this also accepts a link to itself."""
    return Path(os.path.realpath(path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except PermissionError:  # a link to where this user may not look: reading it fails, which is reported
        return True
    except OSError:  # a link to itself
        return False
