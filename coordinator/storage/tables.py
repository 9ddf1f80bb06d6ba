"""The tables of the coordinator's database. Numbers that may exceed 63 bits live inside JSON."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
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

SCHEMA_VERSION = 3
NAME, DIGEST = 63, 64  # characters

metadata = MetaData()

schema = Table("schema", metadata, Column("version", Integer, primary_key=True))

runs = Table(
    "runs",
    metadata,
    Column("run", String(NAME), primary_key=True),
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
    Column("blobs", JSON, nullable=False),  # of a committed round: the global state, role to [sha256, size]
    Column("opened", Double, nullable=False),
    Column("seconds", Double, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("run", String(NAME), primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("device", String(NAME), primary_key=True),
    Column("outcome", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("blobs", JSON, nullable=False),  # that the device sent, role to [sha256, size]
    Column("decoded", JSON, nullable=False),  # that lie in the spool in place of those
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
    Column("device", String(NAME), primary_key=True),
    Column("enrolled", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("certificate_expires", Double, nullable=False),
    Column("public_key_sha256", String(DIGEST), nullable=False),  # of its newest certificate; empty without TLS
    Column("secret_sha256", String(DIGEST), nullable=False),  # of the token that it used last; empty without TLS
    Column("platform", JSON, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("secret_sha256", String(DIGEST), primary_key=True),
    Column("uses_left", Integer, nullable=False),
    Column("expires", Double, nullable=False),
)
