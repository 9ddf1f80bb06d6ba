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
    MetaData,
    String,
    Table,
    Text,
)

SCHEMA_VERSION = 7
NAME, DIGEST = 63, 64  # characters
ROLE = 255
BUNDLE, INITIAL = -1, 0  # in place of a round, what a run's first blobs belong to

metadata = MetaData()


def name() -> String:
    """Return the column type of names, sorted by their bytes whatever the database's locale."""
    return String(NAME).with_variant(String(NAME, collation="C"), "postgresql")


schema = Table("schema", metadata, Column("version", Integer, primary_key=True))

runs = Table(
    "runs",
    metadata,
    Column("run", name(), primary_key=True),
    Column("created", Double, nullable=False),
    Column("status", String(16), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("manifest_sha256", String(DIGEST), nullable=False),
    Column("manifest_size", BigInteger, nullable=False),
    Column("method", Text, nullable=False),
    Column("initial_sha256", String(DIGEST), nullable=False),
    Column("initial_size", BigInteger, nullable=False),
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
    Column("incidents", JSON, nullable=False),  # [device, sentence]
    Column("bases", JSON, nullable=False),  # of an asynchronous round: device to base round
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

# The devices of a run's cohorts, with the latest round that counted each; 0: none.
participants = Table(
    "participants",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("device", name(), primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
)

# The coordinator that may commit a run's rounds, if several share a database; by the database's clock.
leases = Table(
    "leases",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("holder", String(NAME), nullable=False),
    Column("expires", Double, nullable=False),
)

# A run that an operator has asked any of the replicas to stop; its lease holder does so.
stop_requests = Table("stop_requests", metadata, Column("run", ForeignKey("runs.run"), primary_key=True))

# The coordinators that serve this database, until when they count as alive; by the database's clock.
replicas = Table(
    "replicas",
    metadata,
    Column("replica", String(NAME), primary_key=True),
    Column("expires", Double, nullable=False),
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
    ForeignKeyConstraint(("run", "round", "attempt"), ("rounds.run", "rounds.round", "rounds.attempt")),
)

metrics = Table(
    "metrics",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", Double, nullable=False),
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
    Column("revoked", Double, nullable=False, index=True),  # time of revocation; 0: not revoked
)

tokens = Table(
    "tokens",
    metadata,
    Column("secret_sha256", String(DIGEST), primary_key=True),
    Column("uses_left", Integer, nullable=False),
    Column("expires", Double, nullable=False),
)

OF_A_RUN = (
    stop_requests,
    leases,
    participants,
    metrics,
    reports,
    rounds,
    runs,
)  # next to blob_references, in this order
