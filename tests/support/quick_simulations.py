"""Simulations of a few seconds, and their results as they are on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moonfed.experiments.fleet.engine import EngineSettings

QUICK: dict[str, Any] = {"settings": {"epochs": 1, "batch_size": 32}, "parties": 3, "rounds": 2, "seed": 1}
TWO = EngineSettings(workers=2)


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
