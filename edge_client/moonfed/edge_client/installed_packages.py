"""Facts about installed packages, which the command line finds for the agent that it becomes.

Finding them takes a megabyte and a half, for importlib.metadata and what it imports.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache

from moonfed.encodings import known_encodings

INSTALLED_VARIABLE = "MOONFED_CLIENT_INSTALLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackages:
    """`encodings`: the names of all; `torch`: its version; both texts are empty without torch."""

    encodings: tuple[str, ...]
    torch: str
    torch_folder: str

    def to_environment(self) -> dict[str, str]:
        """Return a variable for the process that asks for this next."""
        return {INSTALLED_VARIABLE: json.dumps(asdict(self))}


@cache
def installed_packages() -> InstalledPackages:
    """Read and remove what `to_environment` set; find it if there is nothing. Does not import torch."""
    if document := os.environ.pop(INSTALLED_VARIABLE, ""):
        return _read(**json.loads(document))
    return find_installed_packages()


def _read(encodings: list[str], torch: str, torch_folder: str) -> InstalledPackages:
    return InstalledPackages(encodings=tuple(encodings), torch=torch, torch_folder=torch_folder)


def find_installed_packages() -> InstalledPackages:
    """Search the installed packages, without importing torch."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        return InstalledPackages(encodings=known_encodings(), torch="", torch_folder="")
    return InstalledPackages(
        encodings=known_encodings(), torch=torch.version, torch_folder=str(torch.locate_file("torch"))
    )
