"""The command of the package model-signing that verifies a version."""

from __future__ import annotations

from pathlib import Path


def arguments(version: Path, public: Path) -> list[str]:
    words = ["verify", "key", version, "--signature", version / "model.sig", "--public_key", public]
    return [str(word) for word in words]
