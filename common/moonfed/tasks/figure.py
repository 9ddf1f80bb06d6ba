"""The figure that a model's errors on samples make, by the kind of target, and how far it drops. Needs no numpy."""

from __future__ import annotations

from math import exp, inf, sqrt

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
LOWER_IS_BETTER = ("loss", "error", "rmse", "mae", "perplexity")  # ends of the names of metrics that are no task's
MOST_NATS = 700.0  # whose exponential a float still holds


def figure(kind: Kind, error: float) -> float:
    """Return the figure of a mean of `sample_errors`: the share that is right, RMSE, mean score or perplexity."""
    if kind in SHARES:
        return 1.0 - error
    if kind == "next":
        return exp(min(error, MOST_NATS))
    return sqrt(error) if kind == "values" else error


def is_lower_better(name: str) -> bool:
    """Tell the direction of a metric that is no task's primary one by its name."""
    return name.endswith(LOWER_IS_BETTER)


def drop(score: float, reference: float, *, maximise: bool, share: bool) -> float:
    """Return how much worse a score is than a reference: points of a share, or percent of another reference.

    Negative if it is better; NaN if one of them is NaN.
    """
    worse = reference - score if maximise else score - reference
    if not share:
        worse = worse / abs(reference) if reference else inf if worse > 0 else 0.0
    return round(100 * worse, 9)  # otherwise one sample of 200 would exceed 0.5
