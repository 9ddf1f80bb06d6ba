"""Redaction: reasons sent to the coordinator name no paths of this device; its own log does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

HIDDEN = "PATH"
_CALLABLE = re.compile(r"[\w.]+:\w+")  # data from the user's code, not a path
_FORMAT = r"(?:moonfed-[a-z]+|torchscript|graph)/\d+"
_QUOTED = re.compile(  # an apostrophe opens nothing
    rf"(?<!\w)b?(?:'(?!{_FORMAT}')[^'\n]*/[^'\n]*'|\"(?!{_FORMAT}\")[^\"\n]*/[^\"\n]*\")"
)
_BARE = re.compile(r"(?<![\w.])(?:\w+:)?(?:~\w*|\.{1,2})?/+[^\s'\",;/][^\s'\",;]*")

_FINAL = re.compile(rf": ['\"]?{HIDDEN}['\"]?$")  # which only named the path


def without_paths(reason: str, paths_to_hide: Sequence[str]) -> str:
    """Replace every path in a reason by PATH: those of `paths_to_hide`, what is below them, and any other.

    A path is quoted text with a slash, or text that begins with one; names of formats such as 'moonfed-bundle/4' are
    left alone. One that only follows the reason, after a colon, is left out.
    """
    reason = _QUOTED.sub(lambda found: f"{found[0][-1]}{HIDDEN}{found[0][-1]}", reason)
    for path in sorted(_spellings(paths_to_hide), key=len, reverse=True):
        reason = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w-])(?:/[^\s'\",;]*)?", HIDDEN, reason)
    return _FINAL.sub("", _BARE.sub(HIDDEN, reason))


def _spellings(paths_to_hide: Sequence[str]) -> set[str]:
    """Return each path as given and as an absolute path."""
    paths = [Path(path) for path in paths_to_hide if not _CALLABLE.fullmatch(path)]
    return {spelling for path in paths for spelling in (str(path), str(path.resolve()))} - {".", "..", "/"}
