"""The counters and histograms of a coordinator. No label has a value that a device or a run's name chooses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from moonfed.coordinator.observer import UPDATE_REASONS
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.encodings import known_encodings

OTHER_FILES = "other"  # in place of an encoding: manifests, plans, and the files of releases
DIRECTIONS = ("received", "sent")
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
CALLS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
PHASE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0, 30000.0)
MEMORY = tuple(float(4**power << 20) for power in range(8))  # bytes: 1 MiB to 16 GiB


class Instruments:
    """All counters and histograms, in one registry; those with fixed labels begin at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each series, which nobody uses
        self.rounds = Counter(
            "moonfed_rounds", "Attempts at a round that ended on this coordinator", ["outcome"], registry=registry
        )
        self.phase_seconds = Histogram(
            "moonfed_round_phase_seconds",
            "Duration of the phases of committed rounds",
            ["phase"],
            buckets=PHASE_BUCKETS,
            registry=registry,
        )
        self.runs_ended = Counter(
            "moonfed_runs_ended", "Runs that ended on this coordinator", ["outcome"], registry=registry
        )
        self.updates = Counter(
            "moonfed_updates",
            "Devices' updates, by what became of them and why",
            ["outcome", "reason"],
            registry=registry,
        )
        self.transferred = Counter(
            "moonfed_transferred_bytes",
            "Bytes of models and files exchanged with devices",
            ["direction", "encoding"],
            registry=registry,
        )
        self.incidents = Counter(
            "moonfed_incidents", "Incidents that robust aggregation found in committed rounds", registry=registry
        )
        self.calls = Counter(
            "moonfed_calls", "gRPC calls that ended, by their status code", ["method", "status"], registry=registry
        )
        self.call_seconds = Histogram(
            "moonfed_call_seconds",
            "Duration of gRPC calls, without streams that last as long as a session",
            ["method"],
            buckets=CALLS,
            registry=registry,
        )
        self.transaction_seconds = Histogram(
            "moonfed_transaction_seconds", "Duration of durable transactions", buckets=SHORT, registry=registry
        )
        self.fsync_seconds = Histogram(
            "moonfed_fsync_seconds", "Duration of fsyncs of files and directories", buckets=SHORT, registry=registry
        )
        self.reduction_memory = Histogram(
            "moonfed_reduction_memory_bytes",
            "Growth of the process's memory, at its peak, during a reduction",
            buckets=MEMORY,
            registry=registry,
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Create the series with fixed labels: a rate needs a first value, and a dashboard something to show."""
        for outcome in ("committed", "abandoned", "stopped"):
            self.rounds.labels(outcome)
        for outcome in ("finished", "stopped", "failed"):
            self.runs_ended.labels(outcome)
        for phase in PHASES:
            self.phase_seconds.labels(phase)
        for update, reasons in UPDATE_REASONS.items():
            for reason in reasons:
                self.updates.labels(update, reason)
        for encoding in (*known_encodings(), OTHER_FILES):
            self.transferred.labels("sent", encoding)
            if encoding != OTHER_FILES:
                self.transferred.labels("received", encoding)
