"""The tasks: what a model predicts, how a prediction is scored, and which loss it is trained with.

A task is one module of this package and one line of `TASKS`; `task` defines its interface. Loss, sums and output are
compiled into the plan (`moonfed.export.criteria`), so that devices need no update for a new task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonfed.registry import Registry

if TYPE_CHECKING:
    from moonfed.tasks.task import Task

_PACKAGE = "moonfed.tasks"
TASKS: Registry[Task] = Registry(
    "task",
    "moonfed.tasks",
    f"{_PACKAGE}.task:Task",
    {
        "classification": f"{_PACKAGE}.classification:Classification",
        "multilabel": f"{_PACKAGE}.multilabel:Multilabel",
        "regression": f"{_PACKAGE}.regression:Regression",
        "segmentation": f"{_PACKAGE}.segmentation:Segmentation",
        "anomaly-detection": f"{_PACKAGE}.anomaly_detection:AnomalyDetection",
        "next-token": f"{_PACKAGE}.next_token:NextToken",
    },
)
