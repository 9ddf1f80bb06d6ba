"""The interface of a data source: samples on disk, or from a user's function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet
from moonfed.data.storage import Storage

HeartbeatCallback = Callable[[], None]  # called regularly while reading, as a heartbeat
LabelUse = Literal["required", "if present", "ignored"]
REQUIRED: LabelUse = "required"
IF_PRESENT: LabelUse = "if present"
IGNORED: LabelUse = "ignored"

_log = logging.getLogger(__name__)


class Source(Protocol):
    """A source of samples."""

    decodes: bool  # whether reading is slow enough to cache the result on disk

    def check(self) -> None:
        """Raise InvalidInput or NotFound for problems that do not depend on the bundle."""

    def fingerprint(self) -> str | None:
        """Return a fingerprint of the samples; None if unknown: the samples are then read again in every round."""

    def read(
        self,
        spec: InputSpec,
        target: TargetSpec,
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
        storage: Storage | None = None,
    ) -> DataSet:
        """Return the samples in the bundle's form; InvalidInput names what does not fit.

        `storage`: where they go; None: to memory or, if they are too large, to temporary files.
        """


def wants_labels(use: LabelUse, present: bool) -> bool:
    """Return whether to read the labels; a source without required ones raises its own error."""
    return use == REQUIRED or (use == IF_PRESENT and present)


def report(notes: Sequence[str]) -> None:
    """Log what a reader has left out, or used only in part."""
    for note in notes:
        _log.warning("%s", note)
