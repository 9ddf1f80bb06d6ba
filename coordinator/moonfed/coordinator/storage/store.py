"""The coordinator's database: runs, rounds and metrics, device reports, devices, leases and more.

Every method is one transaction and returns when it is durable. It calls one module per table, whose functions run
within a transaction. Nothing here depends on the protocol of rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from secrets import token_bytes

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef
from moonfed.control.kinds import MAX_NUMBER
from moonfed.control.runs import Round
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.draw import SECRET_BYTES, Draw
from moonfed.coordinator.observer import Observer
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry
from moonfed.coordinator.records import (
    NOT_MEASURED,
    AttemptId,
    AttemptMeasurements,
    RoundRecord,
    RunRecord,
)
from moonfed.coordinator.rounds.events import STOPPED
from moonfed.coordinator.rounds.retention import KEEP_ALL, Retention
from moonfed.coordinator.rounds.state import ACTIVE, NOTHING
from moonfed.coordinator.storage import (
    device_outcomes,
    device_reports,
    device_results,
    online_devices,
    outbox,
    participants,
    privacy_ledger,
    rounds,
    run_summaries,
    runs,
    usage,
)
from moonfed.coordinator.storage.audit_trail import AuditTrail
from moonfed.coordinator.storage.blobs import references
from moonfed.coordinator.storage.blobs.ownership import BlobLocation, claim
from moonfed.coordinator.storage.blobs.pins import SharedPins
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.transactions import Transactions
from moonfed.coordinator.storage.deployments import Deployments
from moonfed.coordinator.storage.device_outcomes import DeviceOutcomes
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.storage.device_reports import DeviceReports
from moonfed.coordinator.storage.eligibility import EligibilityReports
from moonfed.coordinator.storage.evaluations import EvaluationRecords
from moonfed.coordinator.storage.leases import ExclusiveLeases, Leases, SharedLeases
from moonfed.coordinator.storage.metrics import metrics_by_round, put_metrics
from moonfed.coordinator.storage.online_devices import OnlineDevices
from moonfed.coordinator.storage.operator_registry import OperatorRegistry
from moonfed.coordinator.storage.outbox import Outbox
from moonfed.coordinator.storage.privacy_ledger import PrivacyLedger
from moonfed.coordinator.storage.registry_view import RegistryViews
from moonfed.coordinator.storage.releases import Releases
from moonfed.coordinator.storage.run_summaries import RunSummaries
from moonfed.errors import WrongState

RECEIPT_ROUNDS = 20  # newest rounds whose reports are kept, so that a device can ask for its receipt again


class Store:
    """A database that has its schema; `db.sqlite` and `db.postgres` open one.

    `schema`: the newest revision that this release knows. `holder`: this coordinator's name if others share the
    database; it then changes only the runs that it holds.
    """

    def __init__(self, engine: sql.Engine, *, schema: int, holder: str | None = None) -> None:
        self._transactions = Transactions(engine)
        self.outbox = Outbox(self._transactions)
        self.leases: Leases = SharedLeases(self._transactions, holder) if holder else ExclusiveLeases()
        self.devices = DeviceRegistry(self._transactions)
        self.operators = OperatorRegistry(self._transactions)
        self.registry = RegistryViews(self._transactions)
        self.audit = AuditTrail(self._transactions)
        self.privacy = PrivacyLedger(self._transactions)
        self.reports = DeviceReports(self._transactions, self.leases)
        self.outcomes = DeviceOutcomes(self._transactions)
        self.eligibility = EligibilityReports(self._transactions)
        self.evaluations = EvaluationRecords(self._transactions)
        self.online_devices = OnlineDevices(self._transactions, holder, schema)
        self.run_summaries = RunSummaries(self._transactions)
        self.releases = Releases(self._transactions)
        self.deployments = Deployments(self._transactions, self.outbox)
        self.pins = SharedPins(self._transactions, holder) if holder else None

    def observe(self, observer: Observer) -> None:
        """Report the time of every durable transaction."""
        self._transactions.observer = observer

    def blob_totals(self) -> tuple[int, int]:
        """Return the number of blobs that runs and releases refer to, and their bytes."""
        with self._transactions.read() as connection:
            return usage.blob_totals(connection)

    def encoding_of(self, sha256: str) -> str | None:
        """Return the encoding of a file of a run's global state; None for any other blob."""
        with self._transactions.read() as connection:
            return usage.encoding_of(connection, sha256)

    def close(self) -> None:
        """Close the database's files or connections."""
        self._transactions.close()

    def claim_blobs(self, location: BlobLocation) -> None:
        """Check that the database and the blob location belong together; raises WrongState."""
        claim(self._transactions, location)

    def inherit(self, holder: str) -> None:
        """Take over the leases of a coordinator that has ended, and delete its online devices."""
        with self._transactions.write() as connection:
            self.leases.inherit_in(connection, holder)
            online_devices.delete_entries(connection, holder)

    # Runs

    def add_run(
        self,
        record: RunRecord,
        bundle: Mapping[str, BlobRef] | None = None,
        other_state: Mapping[str, BlobRef] | None = None,
        draw: Draw | None = None,
    ) -> None:
        """Record a new run and its bundle's files; raises AlreadyExists if the name is taken.

        `other_state`: the other files of its initial global state, by role. `draw`: by default, of a new random secret.
        """
        with self._transactions.write() as connection:
            runs.add(connection, record, bundle or {}, other_state or {}, draw or Draw(token_bytes(SECRET_BYTES)))
            self.leases.acquire_in(connection, record.run)

    def initial_state(self, run: str) -> dict[str, BlobRef]:
        """Return the global state that a run starts from, by role."""
        return self.global_state(run, tables.INITIAL)

    def global_state(self, run: str, round_: int) -> dict[str, BlobRef]:
        """Return the blobs of a round's global state that are still kept, by role; round 0 is the initial state."""
        with self._transactions.read() as connection:
            return references.by_round(connection, run, round_, round_).get(round_, {})

    def runs(self) -> list[RunRecord]:
        """Return all runs, oldest first."""
        with self._transactions.read() as connection:
            return runs.all_runs(connection)

    def run(self, run: str) -> RunRecord:
        """Return one run; raises NotFound."""
        with self._transactions.read() as connection:
            return runs.one(connection, run)

    def draw(self, run: str) -> Draw:
        """Return a run's draw, with its secret; raises NotFound."""
        with self._transactions.read() as connection:
            return runs.draw(connection, run)

    def end_run(self, run: str, status: str, reason: str = "") -> None:
        """Record that the run has finished, was stopped, or failed for that reason."""
        with self._transactions.write() as connection:
            self.leases.require(connection, run)
            if runs.status_held(connection, run) in ACTIVE:  # a repetition is no further event
                self.outbox.add(connection, outbox.run_ended(connection, run, status, reason))
            runs.end(connection, run, status, reason)

    def set_paused(self, run: str, *, paused: bool) -> None:
        """Record whether the run is paused, which fulfils operators' requests for that; idempotent."""
        with self._transactions.write() as connection:
            self.leases.require(connection, run)
            runs.set_paused(connection, run, paused=paused)
            run_summaries.fulfil(connection, run)

    def delete_run(self, run: str) -> list[BlobRef]:
        """Delete a run that has ended, with its rounds; return the blobs that are no longer referenced.

        Raises NotFound, or WrongState while it runs.
        """
        with self._transactions.write() as connection:
            if (status := runs.status_held(connection, run)) in ACTIVE:
                raise WrongState(f"run {run!r} is {status}; stop it before you delete it", field="run", value=run)
            return runs.delete(connection, run)

    def prune_run(self, run: str, retention: Retention, needed: int = 1) -> tuple[int, list[BlobRef]]:
        """Drop old global models; return their number and the unreferenced blobs. Raises NotFound.

        `needed`: the number of newest global states that must stay complete.
        """
        with self._transactions.write() as connection:
            runs.status_held(connection, run)
            return references.prune(connection, run, retention.at_least(needed), needed)

    # Rounds

    def open_round(self, attempt: AttemptId, cohort: Sequence[str], reused: Mapping[str, int] = NOTHING) -> None:
        """Record that a round opened with this cohort; idempotent.

        `reused`: the devices whose update of an earlier attempt counts in it, with that attempt.
        """
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            rounds.add(connection, attempt, cohort, reused)
            # The others are participants already, unless they were removed.
            participants.drawn(connection, attempt.run, [device for device in cohort if device not in reused])

    def join_round(self, attempt: AttemptId, device: str) -> None:
        """Record that one more device starts from the open round's model."""
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            rounds.join(connection, attempt, device)
            participants.drawn(connection, attempt.run, [device])

    def replace_devices(self, attempt: AttemptId, devices: Sequence[str]) -> None:
        """Record that these devices join the open round's cohort as replacements; idempotent."""
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            rounds.replace_devices(connection, attempt, devices)
            participants.drawn(connection, attempt.run, devices)

    def begin_reducing(self, attempt: AttemptId) -> None:
        """Make every replica reject further reports of the round; idempotent."""
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            rounds.begin_reducing(connection, attempt)

    def reopen_round(self, attempt: AttemptId) -> None:
        """Delete the cohort's reports in a round that has not ended, as if it had just opened."""
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            rounds.reopen(connection, attempt)

    def commit_round(
        self,
        attempt: AttemptId,
        counted: Sequence[str],
        blobs: Mapping[str, BlobRef],
        *,
        metrics: Mapping[str, float],
        metrics_before: Mapping[str, float],
        incidents: Sequence[Incident] = (),
        bases: Mapping[str, int] = NOTHING,
        reused: Mapping[str, int] = NOTHING,
        retention: Retention = KEEP_ALL,
        needed: int = 1,
        measured: AttemptMeasurements = NOT_MEASURED,
        release: LedgerEntry | None = None,
    ) -> list[BlobRef]:
        """Record, atomically, a round's global state by role, its devices, and metrics of its and the previous model.

        `bases`: the rounds whose models an asynchronous round's updates started from, by device. `reused`: the earlier
        attempts that some updates are from. `measured`: by the run's driver. `release`: of a run with privacy, which
        is charged for it; raises WrongState if its budget is spent. Returns the blobs of older global states that are
        no longer referenced: `retention` does not keep them, and they are not among the `needed` newest.
        """
        found = [[incident.device, incident.description, incident.clipped] for incident in incidents]
        clipped = {incident.device for incident in incidents if incident.clipped}
        changes = {"counted": list(counted), "incidents": found, "bases": dict(bases), "updates": len(counted)}
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            outcomes = device_results.committed(
                connection, attempt, counted, incidents, measured, asynchronous=bool(bases)
            )
            rounds.close(connection, attempt, "committed", {**changes, "outcomes": outcomes}, measured)
            if release:
                privacy_ledger.charge(connection, release, runs.one(connection, attempt.run).settings.rounds)
            participants.counted(connection, attempt, counted, bases, reused, clipped)
            references.add(connection, attempt.run, attempt.round, blobs)
            put_metrics(connection, attempt.run, attempt.round, metrics)
            put_metrics(connection, attempt.run, attempt.round - 1, metrics_before)
            device_reports.forget(connection, attempt.run, attempt.round - max(RECEIPT_ROUNDS, needed))
            device_outcomes.forget_rounds(connection, attempt.run, attempt.round - device_outcomes.ROUNDS_KEPT)
            return references.prune(connection, attempt.run, retention.at_least(needed), needed)[1]

    def replace_global_state(
        self,
        committed: AttemptId,
        roles: Collection[str],
        blobs: Mapping[str, BlobRef],
        under_way: AttemptId | None,
        reason: str,
    ) -> list[BlobRef]:
        """Replace some roles' blobs in a committed round's global state; return the unreferenced ones.

        `under_way`: the attempt that started from that state, which is abandoned. The reason is recorded with both.
        The updates of earlier attempts started from that state, too, so no further attempt counts them.
        """
        with self._transactions.write() as connection:
            self.leases.require(connection, committed.run)
            if under_way:
                self._abandon(connection, under_way, reason)
            rounds.forget_reusable(connection, committed.run, committed.round + 1)
            rounds.note(connection, committed, reason)
            return references.replace(connection, committed.run, committed.round, roles, blobs)

    def abandon_round(
        self,
        attempt: AttemptId,
        reason: str,
        reusable: Mapping[str, int] = NOTHING,
        measured: AttemptMeasurements = NOT_MEASURED,
    ) -> None:
        """Record that a round was abandoned; idempotent.

        `reusable`: the devices whose updates the next attempt may count, with the attempt that each is from.
        `measured`: by the run's driver.
        """
        with self._transactions.write() as connection:
            self.leases.require(connection, attempt.run)
            self._abandon(connection, attempt, reason, reusable, measured)

    def round(self, attempt: AttemptId) -> RoundRecord | None:
        """Return one attempt at a round; None if it is unknown."""
        with self._transactions.read() as connection:
            return rounds.one(connection, attempt)

    def latest_round(self, run: str, status: str | None = None) -> RoundRecord | None:
        """Return a run's newest attempt, or its newest with that status."""
        with self._transactions.read() as connection:
            return rounds.latest(connection, run, status)

    def past_rounds(self, run: str, after: AttemptId | None, limit: int) -> list[RoundRecord]:
        """Return the next `limit` committed and abandoned attempts after `after`, in order."""
        with self._transactions.read() as connection:
            return rounds.past(connection, run, after, limit)

    def shown_rounds(self, run: str, after: AttemptId | None, limit: int) -> list[Round]:
        """Return the next `limit` committed and abandoned attempts after `after`, in order, as operators see them."""
        with self._transactions.read() as connection:
            return rounds.shown(connection, run, after, limit)

    def past_round_before(self, run: str, newest: int) -> AttemptId | None:
        """Return the last committed or abandoned attempt before the `newest` ones; None if there are no more."""
        with self._transactions.read() as connection:
            return rounds.past_before(connection, run, newest)

    def participants(self, run: str) -> set[str]:
        """Return the devices that were in any cohort of the run, by their present names."""
        with self._transactions.read() as connection:
            return participants.all_of(connection, run)

    def certificates_for(self, sha256: str) -> set[str]:
        """Return the serial numbers of the certificates with which the blob may be fetched; names without TLS."""
        with self._transactions.read() as connection:
            return participants.certificates_for(connection, sha256)

    def may_fetch(self, sha256: str, device: str) -> bool:
        """Return True if the device was in any cohort of a run that refers to the blob."""
        with self._transactions.read() as connection:
            return participants.may_fetch(connection, sha256, device)

    def clipped_in_a_row(self, run: str) -> dict[str, int]:
        """Return the number of counted rounds in a row that clipped each device, where it is not 0."""
        with self._transactions.read() as connection:
            return participants.clipped_in_a_row(connection, run)

    def latest_counted(self, run: str) -> dict[str, AttemptId]:
        """Return each device's latest attempt that counted its update."""
        with self._transactions.read() as connection:
            return participants.latest_counted(connection, run)

    # Blobs

    def refers_to(self, sha256: str) -> bool:
        """Return True if any run or release refers to the blob."""
        with self._transactions.read() as connection:
            return references.any_to(connection, sha256)

    # Metrics

    def put_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Record metrics of a global model, replacing those of the same name."""
        with self._transactions.write() as connection:
            put_metrics(connection, run, round_, metrics)

    def metrics(self, run: str, round_: int) -> dict[str, float]:
        """Return a global model's metrics by name; round 0 is the initial model."""
        with self._transactions.read() as connection:
            return metrics_by_round(connection, run, round_, round_).get(round_, {})

    def metrics_of_run(self, run: str) -> dict[int, dict[str, float]]:
        """Return the metrics of a run's global models, by round and name."""
        with self._transactions.read() as connection:
            return metrics_by_round(connection, run, 0, MAX_NUMBER)

    def _abandon(
        self,
        connection: sql.Connection,
        attempt: AttemptId,
        reason: str,
        reusable: Mapping[str, int] = NOTHING,
        measured: AttemptMeasurements = NOT_MEASURED,
    ) -> None:
        outcomes = device_results.abandoned(connection, attempt, reusable, measured)
        updates = outcomes.get("abandoned", 0)
        changes = {"reason": reason, "updates": updates, "reusable": dict(reusable), "outcomes": outcomes}
        if rounds.close(connection, attempt, "abandoned", changes, measured) and not reason.startswith(STOPPED):
            self.outbox.add(connection, outbox.round_abandoned(attempt, reason, updates))
