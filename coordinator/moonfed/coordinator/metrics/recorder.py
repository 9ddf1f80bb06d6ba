"""The recorder: an observer that counts and times what a coordinator reports, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from moonfed.coordinator.metrics import memory
from moonfed.coordinator.metrics.instruments import OTHER_FILES, Instruments
from moonfed.coordinator.observer import Observer, RunOutcome, UpdateOutcome
from moonfed.coordinator.records import RoundRecord
from moonfed.coordinator.rounds.events import STOPPED
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.coordinator.storage.transient_errors import as_full_disk, as_unreachable
from moonfed.encodings import known_encodings
from moonfed.errors import AlreadyExists, ResourceExhausted, Unavailable, WrongState

SESSIONS = ("Connect", "Watch")  # methods that stream for as long as their caller likes
MAX_METHODS, BLOBS_REMEMBERED = 200, 256


class MetricsRecorder(Observer):
    """Records measurements. `encoding_of`: finds the encoding of a blob that devices fetch; blocking."""

    def __init__(self, instruments: Instruments, encoding_of: Callable[[str], str | None]) -> None:
        self._instruments, self._encodings = instruments, (*known_encodings(), OTHER_FILES)
        self._encoding_of = lru_cache(BLOBS_REMEMBERED)(encoding_of)

    def call_ended(self, method: str, status: str, seconds: float) -> None:
        """Count a call, and time it unless its caller decides how long it takes."""
        name = method_name(method)
        self._instruments.calls.labels(name, status).inc()
        if not name.partition("/")[2].startswith(SESSIONS):
            self._instruments.call_seconds.labels(name).observe(seconds)

    def update_ended(self, outcome: UpdateOutcome, reason: str) -> None:
        """Count an update."""
        self._instruments.updates.labels(outcome, reason).inc()

    def update_refused(self, error: Exception) -> None:
        """Count an update that was refused because of this error, unless the error is reported as an outcome."""
        if reason := refusal_reason(error):
            self.update_ended("refused", reason)

    def received(self, encoding: str, size: int) -> None:
        """Count bytes of an update."""
        self._instruments.transferred.labels("received", encoding).inc(size)

    def download(self, sha256: str) -> Callable[[int], None]:
        """Return the counter of a download's bytes."""
        found = self._encoding_of(sha256)
        encoding = found if found in self._encodings else OTHER_FILES
        return self._instruments.transferred.labels("sent", encoding).inc

    def round_ended(self, record: RoundRecord) -> None:
        """Count an attempt at a round that has ended, and time the phases of a committed one."""
        instruments, outcome = self._instruments, round_outcome(record)
        instruments.rounds.labels(outcome).inc()
        instruments.incidents.inc(len(record.incidents))
        if outcome != "stopped":
            instruments.updates.labels("missing", "unfinished").inc(record.outcomes.get("missing", 0))
        if outcome == "committed":
            for phase in record.phases.keys() & PHASES:
                instruments.phase_seconds.labels(phase).observe(record.phases[phase])

    def run_ended(self, outcome: RunOutcome) -> None:
        """Count a run."""
        self._instruments.runs_ended.labels(outcome).inc()

    @contextmanager
    def reducing(self) -> Iterator[None]:
        """Measure by how much the process grows; several reductions at once are measured together."""
        memory.reset_peak()
        before = memory.resident()
        try:
            yield
        finally:
            peak = memory.peak()
            if before is not None and peak is not None:
                self._instruments.reduction_memory.observe(max(0, peak - before))

    def wrote(self, seconds: float) -> None:
        """Time a transaction."""
        self._instruments.transaction_seconds.observe(seconds)

    def fsynced(self, seconds: float) -> None:
        """Time an fsync."""
        self._instruments.fsync_seconds.observe(seconds)


@lru_cache(MAX_METHODS)
def method_name(method: str) -> str:
    """Return the service and the method of a full name, such as Fleet/Submit."""
    service, _, name = method.rpartition("/")
    return f"{service.rpartition('.')[2]}/{name}"


def round_outcome(record: RoundRecord) -> str:
    """Return the outcome of an attempt that has ended."""
    if record.status == "committed":
        return "committed"
    return "stopped" if record.reason.startswith(STOPPED) else "abandoned"


def refusal_reason(error: Exception) -> str | None:
    """Return why an update was rejected with this error; None if that is counted elsewhere, or nothing was rejected.

    Bad content is counted as rejected, and a full disk budget separately.
    """
    cause = error.__cause__ if isinstance(error, ResourceExhausted) else error
    if isinstance(error, AlreadyExists):
        return "duplicate"
    if isinstance(error, WrongState):
        return "late"
    full = isinstance(cause, Exception) and (as_full_disk(cause) or as_unreachable(cause))
    return "unavailable" if full or isinstance(error, Unavailable) else None
