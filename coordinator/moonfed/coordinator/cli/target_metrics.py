"""The names of metrics at which a run is to stop: a misspelt one would never be reached, and the run go on."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from moonfed.bundle.manifest import Manifest
from moonfed.errors import InvalidInput
from moonfed.tasks import TASKS

SIMILAR = 0.75  # ratio of difflib from which a name is taken for a misspelt one


def unknown_metrics(names: Iterable[str], manifest: Manifest, *, private: bool = False) -> list[str]:
    """Return those that neither evaluators nor devices record, which a program of the operator's may.

    The name of a test set may follow, as in `rmse@night`. Raises InvalidInput for one that is almost a known name, and
    in a run with privacy for a metric of devices, which then send none.
    """
    task, metric = manifest.task.name, manifest.metric.name
    others = TASKS[task].others if task in TASKS else ()
    of_devices = (f"holdout_{metric}", "holdout_loss", "train_loss")
    for name in set(names).intersection(of_devices) if private else ():
        raise InvalidInput(field="target", value=name, rest=", which devices do not send in a run with privacy")
    known = (metric, *others, "loss", *of_devices)
    unknown = [name for name in names if name.partition("@")[0] not in known]
    for name in unknown:
        if get_close_matches(name.partition("@")[0].lower(), known, n=1, cutoff=SIMILAR):
            raise InvalidInput(field="target", value=name, allowed=f"one of this run's metrics, {', '.join(known)}")
    return unknown
