"""Predictions as JSON, in the same form from `moonfed-client predict` and `moonfed-export classify`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def prediction_document(name: str, classes: Iterable[tuple[int, str, float]]) -> dict[str, Any]:
    """Return one sample's prediction; `classes`: index, label (may be empty) and confidence, best first."""
    ranked = [{"index": index, "label": label, "confidence": confidence} for index, label, confidence in classes]
    best = ranked[0]
    return {
        "name": name,
        "class": best["label"] or str(best["index"]),
        "confidence": best["confidence"],
        "classes": ranked,
    }
