"""The place of the installed releases; the modules about them take memory only where there are some."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = "repository"  # in the state directory


def has_releases(state: Path) -> bool:
    """Return whether a device has ever installed a release."""
    return (state / REPOSITORY).is_dir()
