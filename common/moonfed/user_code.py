"""User callables, named `module:callable` on a command line: import and calls with clear errors."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

from moonfed.errors import InvalidInput

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def load_callable(field: str, text: str) -> Callable[..., object]:
    """Return the callable that `module:callable` names; modules in the working directory are found.

    `field`: the text's name in the message. Raises InvalidInput if it cannot be imported or is not callable.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs user code, which may raise anything
        raise InvalidInput(
            field=field, value=text, rest=f", which cannot be imported: {describe_error(error)}"
        ) from error
    if not callable(found):
        raise InvalidInput(field=field, value=text, rest=f", a {type(found).__name__}; it must be callable")
    return found  # type: ignore[no-any-return]


def call_user_function(field: str, text: str, function: Callable[..., object], *arguments: object) -> object:
    """Call the user's function; InvalidInput reports the exception and its location."""
    try:
        return function(*arguments)
    except Exception as error:  # only the user can fix it
        raise InvalidInput(field=field, value=text, rest=f", which raised {describe_error(error)}") from error


def describe_error(error: Exception) -> str:
    """Describe an error in a line, with its place in the user's code if it comes from there."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if not theirs:
        return text or type(error).__name__
    return f"{type(error).__name__} in {theirs[-1].filename}, line {theirs[-1].lineno}" + (f": {text}" if text else "")


def _is_users(file: str) -> bool:
    """Return whether a file is neither ours, nor Python's, nor an installed package's."""
    others = ("site-packages", "dist-packages", "moonfed")
    return not (file.startswith(("<", _STANDARD_LIBRARY)) or set(others) & set(Path(file).parts))
