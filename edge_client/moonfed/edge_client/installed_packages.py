"""Facts about installed packages, which the command line finds for the agent that it becomes.

Finding them takes a megabyte and a half, for importlib.metadata and what it imports.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from moonfed.encodings import known_encodings
from moonfed.plan.selection import torchscript_is_supported

INSTALLED_VARIABLE = "MOONFED_CLIENT_INSTALLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackages:
    """`encodings`: the names of all; `torch`: its version; both texts are empty without torch.

    `torchscript`: whether this Python and torch run it.
    """

    encodings: tuple[str, ...]
    torch: str
    torch_folder: str
    torchscript: bool

    def to_environment(self) -> dict[str, str]:
        """Return a variable for the process that asks for this next."""
        return {INSTALLED_VARIABLE: json.dumps(asdict(self))}


@cache
def installed_packages() -> InstalledPackages:
    """Read and remove what `to_environment` set; find it if there is nothing. Does not import torch."""
    if document := os.environ.pop(INSTALLED_VARIABLE, ""):
        return _read(**json.loads(document))
    return find_installed_packages()


def _read(encodings: list[str], **others: Any) -> InstalledPackages:  # noqa: ANN401 - the other fields
    return InstalledPackages(encodings=tuple(encodings), **others)


def find_installed_packages() -> InstalledPackages:
    """Search the installed packages, without importing torch."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        return InstalledPackages(encodings=known_encodings(), torch="", torch_folder="", torchscript=False)
    return InstalledPackages(
        encodings=known_encodings(),
        torch=torch.version,
        torch_folder=str(torch.locate_file("torch")),
        torchscript=torchscript_is_supported(torch.version),
    )
