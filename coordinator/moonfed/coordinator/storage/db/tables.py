"""The tables of the coordinator's database. Numbers that may exceed 63 bits live inside JSON."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from moonfed.coordinator.draw import SECRET_BYTES

NAME, DIGEST, SERIAL = 63, 64, 64  # characters
ROLE = 255
BUNDLE, INITIAL = -1, 0  # in place of a round: the owner of a run's first blobs
EVALUATED = -2  # the same, of models that devices are asked to evaluate; the role is the round

metadata = MetaData()


def name() -> String:
    """Return the column type of names, sorted by their bytes whatever the database's locale."""
    return String(NAME).with_variant(String(NAME, collation="C"), "postgresql")


# The revision of this schema: the number of the last migration. Alembic's own table; one row.
alembic_version = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))

# Which releases can use the database; one row.
schema = Table(
    "schema",
    metadata,
    Column("readable_from", Integer, nullable=False),  # the oldest revision whose release can
    Column("release", Text, nullable=False),  # of moonfed, which made this revision
)

runs = Table(
    "runs",
    metadata,
    Column("run", name(), primary_key=True),
    Column("created", Double, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False),  # of a failed run
    Column("settings", JSON, nullable=False),
    Column("manifest_sha256", String(DIGEST), nullable=False),
    Column("manifest_size", BigInteger, nullable=False),
    Column("method", Text, nullable=False),
    Column("metric", JSON, nullable=False),  # by which global models are compared
    Column("initial_sha256", String(DIGEST), nullable=False),
    Column("initial_size", BigInteger, nullable=False),
)

# The secret that a run draws its devices with. In a table of its own, so that no error about a run's row shows it.
draws = Table(
    "draws",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("secret", LargeBinary(SECRET_BYTES), nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("status", String(16), nullable=False),
    Column("cohort", JSON, nullable=False),
    Column("counted", JSON, nullable=False),
    Column("reason", Text, nullable=False),
    Column("opened", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("updates", Integer, nullable=False, default=0),  # accepted, once the round has ended
    Column("incidents", JSON, nullable=False),  # [device, sentence, whether it was clipped]
    Column("bases", JSON, nullable=False),  # of an asynchronous round: device to base round
    Column("replacements", JSON, nullable=False),  # devices of the cohort that joined after the draw
    Column("reused", JSON, nullable=False),  # updates of earlier attempts that count: device to attempt
    Column("reusable", JSON, nullable=False),  # of an abandoned round: those that the next attempt may count
    Column("phases", JSON, nullable=False, default=dict),  # of an ended round: its seconds by phase, if measured
    Column("outcomes", JSON, nullable=False, default=dict),  # of an ended round: number of devices by outcome
    Column("received_bytes", BigInteger, nullable=False, default=0),
    Column("sent_bytes", BigInteger, nullable=False, default=0),
    Column("personal_lost", Integer, nullable=False, default=0),  # devices with a lost personal part
)

# Why a blob is kept. Pruning deletes rows here; a blob without any is deleted.
blob_references = Table(
    "blob_references",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),  # whose global state it is; or BUNDLE or INITIAL
    Column("role", String(ROLE), primary_key=True),  # or the file of a bundle
    Column("sha256", String(DIGEST), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
)

# The devices of a run's cohorts, with the latest round that counted each, 0: none, and in how many counted rounds in a
# row it was clipped.
participants = Table(
    "participants",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("device", name(), primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("clipped", BigInteger, nullable=False, default=0),
)

# Each device's latest eligibility report for a run.
eligibility = Table(
    "eligibility",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("device", name(), primary_key=True),
    Column("fingerprint", String(DIGEST), nullable=False),  # of the device's data, limits and release
    Column("reason", Text, nullable=False),  # why it is ineligible; empty: it is eligible
    Column("classes", LargeBinary, nullable=False),  # that it has: moonfed.fleet.class_bits; empty: it does not say
    Column("answered", BigInteger, nullable=False),  # microseconds of the epoch
)

# The coordinator that may commit a run's rounds, if several share a database; by the database's clock.
leases = Table(
    "leases",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("holder", String(NAME), nullable=False),
    Column("expires", Double, nullable=False),
)

# An operator's request about a run, to any of the replicas: stop, pause or resume; the run's lease holder fulfils it.
operator_requests = Table(
    "operator_requests",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("action", String(16), nullable=False),
)

# The coordinators that serve this database, until when they count as alive; by the database's clock.
replicas = Table(
    "replicas",
    metadata,
    Column("replica", String(NAME), primary_key=True),
    Column("expires", Double, nullable=False),
    Column("schema", Integer, nullable=False),  # the newest revision that its release knows
)

# The replica at which each device is online; void once the replica's entry has expired.
online_devices = Table(
    "online_devices",
    metadata,
    Column("device", name(), primary_key=True),
    Column("replica", String(NAME), nullable=False, index=True),
    Column("info", JSON, nullable=False),
    Column("since", BigInteger, nullable=False),  # microseconds of the epoch
    Column("last_heartbeat", Double, nullable=False),  # 0: none yet
    Column("left", Boolean, nullable=False),  # it announced that it stops; the row is deleted a minute later
)

# The authority whose certificates all replicas show and trust; one row.
authority = Table("authority", metadata, Column("sha256", String(DIGEST), primary_key=True))

# The name of this database at its blob location, and whether it is recorded there yet; one row.
blob_ownership = Table(
    "blob_ownership",
    metadata,
    Column("database", String(32), primary_key=True),
    Column("claimed", Boolean, nullable=False),
)

# Blobs that a replica is about to refer to, and until when they are kept; by the database's clock.
pins = Table(
    "pins",
    metadata,
    Column("replica", String(NAME), primary_key=True),
    Column("sha256", String(DIGEST), primary_key=True),
    Column("until", Double, nullable=False),
)

reports = Table(
    "device_reports",
    metadata,
    Column("run", name(), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("device", name(), primary_key=True),
    Column("outcome", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("blobs", JSON, nullable=False),  # that the device sent, role to [sha256, size]
    Column("decoded", JSON, nullable=False),  # files in the spool that replace those
    Column("personal_lost", Boolean, nullable=False, default=False),  # the device began with the bundle's again
    ForeignKeyConstraint(("run", "round", "attempt"), ("rounds.run", "rounds.round", "rounds.attempt")),
)

# Outcomes of devices in the attempts that have ended, by the devices' present names.
device_outcomes = Table(
    "device_outcomes",
    metadata,
    Column("run", name(), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("device", name(), primary_key=True),
    Column("outcome", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("seconds", Double, nullable=False),  # of training; 0: unknown
    Column("time", Double, nullable=False),  # when the attempt ended
    ForeignKeyConstraint(("run", "round", "attempt"), ("rounds.run", "rounds.round", "rounds.attempt")),
    # Without an index by device, which would scatter every round's rows over as many pages as it has devices.
    sqlite_with_rowid=False,
)

metrics = Table(
    "metrics",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", Double, nullable=False),
)

# What runs with privacy have released of devices' data: each committed round, and what has no noise (mechanism none).
# Rows are never deleted, not even with their run, whose name a later run may have: `created` tells them apart.
privacy_releases = Table(
    "privacy_releases",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run", name(), nullable=False),
    Column("created", Double, nullable=False),  # the run
    Column("round", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("mechanism", String(16), nullable=False),
    Column("what", Text, nullable=False),  # was released without noise
    Column("delta", Double, nullable=False),
    Column("sampling_rate", Double, nullable=False),
    Column("noise_multiplier", Double, nullable=False),
    Column("clip_norm", Double, nullable=False),
    Column("next_clip_norm", Double, nullable=False),
    Column("updates_digest", String(DIGEST), nullable=False),  # of all that the release is a function of
    Column("committed", Double, nullable=False),
    UniqueConstraint("run", "created", "round", "mechanism", "what"),
    sqlite_autoincrement=True,
)

# Evaluators' results of global models on test sets.
held_out_scores = Table(
    "held_out_scores",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("test_set", String(NAME), primary_key=True),
    Column("score", JSON, nullable=False),
)

# The newest evaluation of each global model on devices.
evaluations = Table(
    "evaluations",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("model_sha256", String(DIGEST), nullable=False),
    Column("model_size", BigInteger, nullable=False),
    Column("opened", Double, nullable=False),  # by the database's clock, if several coordinators share it
    Column("deadline", Double, nullable=False),
    Column("closed", Double, nullable=False, index=True),  # 0: open
)

# The devices that evaluations expect to answer, and their answers.
evaluation_devices = Table(
    "evaluation_devices",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("device", name(), primary_key=True),
    Column("outcome", String(16), nullable=False),  # pending, scored or declined
    Column("reason", Text, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("score", Double, nullable=False),  # of the run's metric
    Column("local_score", Double, nullable=True),
)

devices = Table(
    "devices",
    metadata,
    Column("device", name(), primary_key=True),
    Column("enrolled", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("certificate_expires", Double, nullable=False),
    Column("public_key_sha256", String(DIGEST), nullable=False),  # of its newest certificate; empty without TLS
    Column("secret_sha256", String(DIGEST), nullable=False),  # of the token that it used last; empty without TLS
    Column("platform", JSON, nullable=False),
    Column("labels", JSON, nullable=False),  # set by operators
    Column("reported_labels", JSON, nullable=False, default=dict),  # its own, when it last connected
    Column("release", Text, nullable=False, default=""),  # of moonfed on the device
    Column("rounds", Integer, nullable=False, default=0),  # committed ones that counted its update
    Column("last_result", JSON, nullable=False, default=dict),  # of its last round that ended: see device_results
    Column("revoked", Double, nullable=False, index=True),  # time of revocation; 0: not revoked
)

# Every certificate of a device, since each is rejected by its serial number.
certificates = Table(
    "certificates",
    metadata,
    Column("serial", String(SERIAL), primary_key=True),
    Column("device", name(), nullable=False, index=True),  # its present name, which differs after it was renamed
    Column("expires", Double, nullable=False),
    Column("rejected", Double, nullable=False, index=True),  # since when; 0: accepted
    Column("reason", String(16), nullable=False),  # revoked, removed, replaced or renamed; empty: accepted
)

# Increases with every change of devices or operators that all replicas must follow at once; one row.
registry_version = Table("registry_version", metadata, Column("version", BigInteger, primary_key=True))

tokens = Table(
    "tokens",
    metadata,
    Column("secret_sha256", String(DIGEST), primary_key=True),
    Column("uses", Integer, nullable=False),
    Column("uses_left", Integer, nullable=False),
    Column("expires", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("operator", name(), nullable=False),  # who created it
    Column("device", name(), nullable=False),  # the only one that may enrol with it; empty: any new one
    Column("revoked", Double, nullable=False),  # time of revocation; 0: not revoked
)

# The certificates of operators.
operators = Table(
    "operators",
    metadata,
    Column("serial", String(SERIAL), primary_key=True),
    Column("operator", name(), nullable=False, index=True),
    Column("role", String(16), nullable=False),
    Column("public_key_sha256", String(DIGEST), nullable=False),
    Column("created", Double, nullable=False),
    Column("created_by", Text, nullable=False),  # the operator; empty: the coordinator itself
    Column("expires", Double, nullable=False),
    Column("revoked", Double, nullable=False, index=True),  # time of revocation; 0: not revoked
)

# Operators' changes, devices' enrolments and renewals, and denied calls.
audit_records = Table(
    "audit_records",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("time", Double, nullable=False),
    Column("name", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("serial", String(SERIAL), nullable=False),
    Column("address", Text, nullable=False),
    Column("call", String(64), nullable=False),
    Column("details", Text, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    sqlite_autoincrement=True,  # numbers of deleted records are not used again
)

# Versions of named models.
releases = Table(
    "releases",
    metadata,
    Column("name", name(), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("created", Double, nullable=False),
    Column("operator", Text, nullable=False),  # who created it
    Column("manifest_sha256", String(DIGEST), nullable=False),
    Column("manifest_size", BigInteger, nullable=False),
    Column("signature_sha256", String(DIGEST), nullable=False),
    Column("signature_size", BigInteger, nullable=False),
    Column("content", Text, nullable=False),  # of the manifest
)

# The files of releases, which keep their blobs as `blob_references` does.
release_blobs = Table(
    "release_blobs",
    metadata,
    Column("name", name(), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("sha256", String(DIGEST), primary_key=True, index=True),
    Column("size", BigInteger, nullable=False),
    ForeignKeyConstraint(("name", "version"), ("releases.name", "releases.version")),
)

deployments = Table(
    "deployments",
    metadata,
    Column("name", name(), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("variant", String(NAME), nullable=False),
    Column("labels", JSON, nullable=False),
    Column("trusted_labels", Boolean, nullable=False),
    Column("percent", Double, nullable=False),
    Column("max_drop", Double, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created", Double, nullable=False),
    Column("operator", Text, nullable=False),  # who deployed it
    ForeignKeyConstraint(("name", "version"), ("releases.name", "releases.version")),
)

# The devices that a deployment has chosen, with what each last reported about it.
deployed_devices = Table(
    "deployed_devices",
    metadata,
    Column("name", name(), primary_key=True),
    Column("deployment", BigInteger, primary_key=True),
    Column("device", name(), primary_key=True, index=True),
    Column("state", String(16), nullable=False),
    Column("had", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("score", Double),
    Column("current_score", Double),
    Column("samples", BigInteger, nullable=False),
    Column("fingerprint", String(DIGEST), nullable=False),
    Column("time", Double, nullable=False),
    ForeignKeyConstraint(("name", "deployment"), ("deployments.name", "deployments.number")),
)

# The version of each release that each device predicts with, by its own account.
installed_releases = Table(
    "installed_releases",
    metadata,
    Column("name", name(), primary_key=True),
    Column("device", name(), primary_key=True, index=True),
    Column("version", Integer, nullable=False),  # 0: none
    Column("variant", String(NAME), nullable=False),
    Column("previous", Integer, nullable=False),  # that it retains; 0: none
)

# Increases when targets may change, apart from those of the device that calls; one row.
deployments_version = Table("deployments_version", metadata, Column("version", BigInteger, primary_key=True))

# Events that the webhook's receiver has not accepted yet, in the order in which they happened.
webhook_events = Table(
    "webhook_events",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String(NAME), nullable=False),  # for the receiver, who may get an event more than once
    Column("created", Double, nullable=False),  # like all times here, by the database's clock if coordinators share it
    Column("body", Text, nullable=False),  # JSON
    Column("attempts", Integer, nullable=False),
    Column("due", Double, nullable=False),  # of the next attempt
    Column("claimed", Double, nullable=False),  # until when one coordinator delivers it; 0: none does
    Column("refused", Boolean, nullable=False),  # by a receiver that may accept later events
    sqlite_autoincrement=True,
)

OF_A_RUN = (
    evaluation_devices,
    evaluations,
    held_out_scores,
    operator_requests,
    leases,
    eligibility,
    participants,
    metrics,
    device_outcomes,
    reports,
    rounds,
    draws,
    runs,
)  # next to blob_references, in this order
