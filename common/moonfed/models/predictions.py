"""Predictions as JSON and as text, by the kind of target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import LIKELY, TargetSpec

NEXT = 5  # tokens that are listed


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


def output_document(
    name: str,
    target: TargetSpec,
    spec: InputSpec,
    output: npt.NDArray[Any],
    sample: npt.NDArray[Any],
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return the prediction of one sample from a model's output for it, and the sample itself.

    `class`: as `prediction_document`. `labels`: each one's probability, and those that apply. `values`: by name, or a
    list for each step of a forecast. `mask`: each class's share of the pixels. `none`: the score and, if there is a
    threshold, whether the sample is anomalous. `next`: the most probable tokens after the last that is no padding.
    """
    if target.kind == "class":
        order = np.argsort(-output, kind="stable")
        return prediction_document(name, ((int(i), target.names[i], float(output[i])) for i in order))
    if target.kind == "labels":
        found = {label: float(value) for label, value in zip(target.names, output, strict=True)}
        return {
            "name": name,
            "labels": [label for label, value in found.items() if value >= LIKELY],
            "probabilities": found,
        }
    if target.kind == "values":
        steps = [dict(zip(target.names, map(float, row), strict=True)) for row in np.atleast_2d(output)]
        return {"name": name, "values": steps if output.ndim > 1 else steps[0]}
    if target.kind == "mask":
        pixels = np.bincount(output.argmax(axis=0).reshape(-1), minlength=len(target.names))
        shares = {label: int(count) / pixels.sum() for label, count in zip(target.names, pixels, strict=True)}
        return {"name": name, "shares": {label: float(share) for label, share in shares.items()}}
    if target.kind == "none":
        score = float(output)
        judged = {} if threshold is None else {"threshold": threshold, "anomalous": score > threshold}
        return {"name": name, "score": score, **judged}
    last = int(np.flatnonzero(np.r_[1, sample[1:]])[-1])
    row = output[last]
    best = np.argsort(-row, kind="stable")[:NEXT]
    return {"name": name, "next": [{"token": spec.vocabulary[i], "probability": float(row[i])} for i in best]}


def output_text(document: dict[str, Any], target: TargetSpec, width: int = 0) -> str:
    """Return a prediction in words, without the sample's name; `width`: the least of a class, in characters."""
    if target.kind == "labels":
        return ", ".join(f"{label} {document['probabilities'][label]:.3f}" for label in document["labels"]) or "none"
    if target.kind == "values":
        steps = document["values"] if isinstance(document["values"], list) else [document["values"]]
        told = (_values(name, [step[name] for step in steps], target) for name in target.names)
        return ("; " if len(steps) > 1 else ", ").join(told)
    if target.kind == "mask":
        ordered = sorted(document["shares"].items(), key=lambda pair: -pair[1])
        return ", ".join(f"{label} {100 * share:.1f} %" for label, share in ordered if share)
    if target.kind == "none":
        score = f"score {document['score']:.4g}"
        if "threshold" not in document:
            return score
        return f"{'anomaly' if document['anomalous'] else 'usual'}  {score} (threshold {document['threshold']:.4g})"
    if target.kind == "next":
        return ", ".join(f"{each['token']!r} {each['probability']:.3f}" for each in document["next"])
    return f"{document['class']:{width}}  {document['confidence']:.3f}"


def _values(name: str, values: Sequence[float], target: TargetSpec) -> str:
    unit = target.units[target.names.index(name)] if target.units else ""
    return f"{name} {', '.join(f'{value:.6g}' for value in values)}{' ' + unit if unit else ''}"
