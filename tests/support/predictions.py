"""Predictions that the programs print as JSON."""

from __future__ import annotations

from typing import Any


def in_order(prediction: dict[str, Any]) -> list[float]:
    """Return the confidences of all classes by index."""
    by_index = {entry["index"]: entry["confidence"] for entry in prediction["classes"]}
    return [by_index[index] for index in range(len(by_index))]
