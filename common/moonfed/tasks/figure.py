"""The figure that a model's errors on samples make, by the kind of target: what people know it as. Needs no numpy."""

from __future__ import annotations

from math import exp, sqrt

from moonfed.bundle.target import Kind

SHARES: tuple[Kind, ...] = ("class", "labels", "mask")  # whose errors are shares of what is wrong
FIGURES: dict[Kind, str] = {
    "class": "accuracy",
    "labels": "share of labels right",
    "mask": "pixel accuracy",
    "values": "rmse",
    "none": "reconstruction error",
    "next": "perplexity",
}
MOST_NATS = 700.0  # whose exponential a float still holds


def figure(kind: Kind, error: float) -> float:
    """Return the figure of a mean of `sample_errors`: the share that is right, RMSE, mean score or perplexity."""
    if kind in SHARES:
        return 1.0 - error
    if kind == "next":
        return exp(min(error, MOST_NATS))
    return sqrt(error) if kind == "values" else error
