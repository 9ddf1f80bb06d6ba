"""Flaws of files and folders of images, counted by kind, each with an example. Needs no numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput
from moonfed.formatting import count
from moonfed.printable import printable


@dataclass(frozen=True, slots=True)
class Flaw:
    """A kind of flaw: what holds of one file or folder, and of several."""

    one: str
    many: str
    noun: str = ""  # empty: an image file; these are counted of all files that were looked at


class UnusableImage(InvalidInput):
    """An image file cannot be used; `detail` says more about the flaw in this file."""

    def __init__(self, file: Path, flaw: Flaw, detail: str = "") -> None:
        self.problem = f"{flaw.one}{_bracketed(detail)}"
        super().__init__(f"{printable(str(file))} {self.problem}")
        self.flaw, self.detail = flaw, detail


class Flaws:
    """The flaws found below one folder."""

    def __init__(self) -> None:
        self._found: dict[Flaw, tuple[int, str]] = {}  # number, and the first example

    def add(self, flaw: Flaw, path: Path, detail: str = "") -> None:
        """Count a flaw."""
        number, example = self._found.get(flaw, (0, printable(f"{path}{_bracketed(detail)}")))
        self._found[flaw] = number + 1, example

    def numbers(self) -> dict[Flaw, int]:
        """Return how often each flaw was found."""
        return {flaw: number for flaw, (number, _) in self._found.items()}

    def sentences(self, files: int, folder: str) -> Iterator[str]:
        """Yield one sentence for each kind of flaw; `files` were looked at in `folder`."""
        for flaw, (number, example) in self._found.items():
            subject = count(number, flaw.noun) if flaw.noun else f"{number} of {count(files, 'file')}"
            verb = flaw.one if flaw.noun and number == 1 else flaw.many
            yield f"{subject} in {folder} {verb}, such as {example}"


def _bracketed(detail: str) -> str:
    return f" ({detail})" if detail else ""
