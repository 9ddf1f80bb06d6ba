"""Redaction: reasons sent to the coordinator name no paths of this device; its own log does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

HIDDEN = "PATH"
_CALLABLE = re.compile(r"[\w.]+:\w+")  # data from the user's code, not a path
_QUOTED = re.compile(r"(?<!\w)b?(?:'[^'\n]*/[^'\n]*'|\"[^\"\n]*/[^\"\n]*\")")  # an apostrophe opens nothing
_BARE = re.compile(r"(?<![\w.])(?:\w+:)?(?:~\w*|\.{1,2})?/+[^\s'\",;/][^\s'\",;]*")


def without_paths(reason: str, places: Sequence[str]) -> str:
    """Replace every path in a reason by PATH: those of `places`, what is below them, and any other.

    A path is what stands in quotes and has a slash, or begins with one; names such as `torchscript/3` stay.
    """
    reason = _QUOTED.sub(lambda found: f"{found[0][-1]}{HIDDEN}{found[0][-1]}", reason)
    for place in sorted(_spellings(places), key=len, reverse=True):
        reason = re.sub(rf"(?<![\w./-]){re.escape(place)}(?![\w-])(?:/[^\s'\",;]*)?", HIDDEN, reason)
    return _BARE.sub(HIDDEN, reason)


def _spellings(places: Sequence[str]) -> set[str]:
    """Return each place as given and as an absolute path."""
    paths = [Path(place) for place in places if not _CALLABLE.fullmatch(place)]
    return {spelling for path in paths for spelling in (str(path), str(path.resolve()))} - {".", "..", "/"}
