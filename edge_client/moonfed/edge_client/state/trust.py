"""The device's trust: the newest trust file that it knows, and the newest accepted version of each bundle.

STATE/trust.json is replaced atomically, so the two never disagree. The agent imports this module: it needs neither
torch nor numpy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from moonfed.edge_client.state.state_version import note_version
from moonfed.errors import Corrupt, InvalidInput, Untrusted, UntrustedBundle
from moonfed.files import read_regular, write_durably
from moonfed.models.release_manifest import ReleaseManifest, verify_manifest
from moonfed.signing import canonical
from moonfed.signing.bundle_signature import Check, moment, signed_by, verify
from moonfed.signing.key_files import user_trust
from moonfed.signing.statement import Statement
from moonfed.signing.trust import Trust, TrustChain

TRUST_FILE = "trust.json"
MAX_BYTES = 1 << 24  # bytes of the file, enough for some hundred thousand bundle names


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrust:
    """The content of STATE/trust.json."""

    trust: Trust
    accepted: Mapping[str, int] = field(default_factory=dict)  # versions, by the bundle's name


def load(state: Path) -> DeviceTrust | None:
    """Return a device's trust, None if it has none yet; Corrupt for a damaged file."""
    file = state / TRUST_FILE
    if not file.exists():
        return None
    try:
        document = json.loads(read_regular(file, MAX_BYTES))
        versions = {str(name): int(version) for name, version in document["accepted"].items()}
        return DeviceTrust(trust=Trust.from_document(document["trust"]), accepted=versions)
    except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt(
            f"{file} is damaged; replace it with: moonfed-client trust FILE", field="trust file", value=file
        ) from error


def pin(state: Path, trust: Trust, *, forget: bool = False) -> None:
    """Trust these keys from now on, instead of any others; `forget`: also the versions accepted under those."""
    held = None if forget else load(state)
    note_version(state)
    _store(state, DeviceTrust(trust=trust, accepted=held.accepted if held else {}))


def accept(state: Path, signature: bytes, manifest: str, now: float) -> Statement:
    """Verify a bundle's signature file, and remember its version and a newer trust file durably.

    `manifest`: the manifest's sha256. Raises UntrustedBundle, also if the device has no trust file.
    """
    held = _require(state)
    found = verify(signature, manifest, now=now, trust=held.trust, accepted=held.accepted)
    statement = found.statement
    known = DeviceTrust(trust=found.trust, accepted={**held.accepted, statement.name: statement.version})
    if known != held:
        _store(state, known)
    return statement


def would_accept(state: Path, signature: bytes, manifest: str, now: float) -> Statement:
    """Verify a bundle's signature file as `accept` does, but remember nothing."""
    held = _require(state)
    return verify(signature, manifest, now=now, trust=held.trust, accepted=held.accepted).statement


def accept_release(state: Path, manifest: bytes, signature: bytes, now: float) -> ReleaseManifest:
    """Verify a release's manifest, and remember a newer trust file durably.

    Raises UntrustedRelease, or UntrustedBundle if the device has no trust file. Versions may decrease, as for a
    roll-back.
    """
    held = _require(state)
    read, trust = verify_manifest(manifest, signature, now=now, trust=held.trust)
    if trust != held.trust:
        _store(state, replace(held, trust=trust))
    return read


def _require(state: Path) -> DeviceTrust:
    held = load(state)
    if held is None:
        raise UntrustedBundle("this device has no trust file; give it one with: moonfed-client trust FILE")
    return held


def bundle_check(trust: Path | None, state: Path) -> Check:
    """Return a check for a bundle in a file, by a trust file, or else a device's trust, or else this user's."""
    held = load(state) if trust is None else None
    if held:
        return signed_by(held.trust, accepted=held.accepted)
    return signed_by(user_trust(trust))


def replace_trust(state: Path, trust: Trust) -> None:
    """Trust these keys instead of any others, and forget the versions accepted under the others."""
    held = load_readable(state)
    pin(state, trust, forget=held is None or held.trust != trust)


def descendant(state: Path, chain: TrustChain, say: Callable[[str], None]) -> Trust:
    """Return the trust of a device that enrols with a join token: the token's, if its own does not speak against it.

    A device that trusts keys already keeps them, unless these vouch for the token's; `say` is then told. Raises
    Untrusted if the token's keys are others.
    """
    held, offered = load(state), chain.newest
    names = f"{state} trusts {_named(held.trust)}; the join token has {_named(offered)}" if held else ""
    try:
        newest = chain.follow(held.trust) if held else chain.verify()
    except UntrustedBundle as error:
        if held is None:
            raise Untrusted(f"the trust file in the join token is invalid: {error}") from error
        raise Untrusted(
            f"{names}, which does not descend from it; to trust another engineer, give their trust file with --trust"
        ) from error
    if held and held.trust != offered:
        say(f"{names}, which {'is older and changes nothing' if newest == held.trust else 'replaces it'}")
    return newest


def load_readable(state: Path) -> DeviceTrust | None:
    """Return a device's trust, None if it has none or a damaged one."""
    try:
        return load(state)
    except Corrupt:
        return None


def describe(trust: Trust) -> str:
    """Describe what a trust file permits in a few words."""
    expires = f", until {moment(trust.expires)}" if trust.expires else ""
    return f"bundles signed with {_keys(trust)}{expires}"


def _named(trust: Trust) -> str:
    """Name a trust file by version and keys."""
    return f"version {trust.version} of a trust file with {_keys(trust)}"


def _keys(trust: Trust) -> str:
    needed = f"{trust.threshold} of the keys " if len(trust.keys) > 1 else ""
    return needed + ", ".join(map(str, trust.keys))


def _store(state: Path, known: DeviceTrust) -> None:
    document: dict[str, Any] = {"trust": known.trust.to_document(), "accepted": dict(known.accepted)}
    write_durably(state / TRUST_FILE, canonical.encode(document), mode=0o600)
