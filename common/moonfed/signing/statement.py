"""The statement that an engineer signs about a bundle or a release."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from moonfed.errors import InvalidInput, UntrustedBundle, UntrustedRelease
from moonfed.signing import canonical
from moonfed.validate import require, require_line, require_whole

MAX_NAME = 255  # characters
MAX_NUMBER = (1 << 53) - 1  # every JSON reader has the same number
SHA256 = re.compile(r"[0-9a-f]{64}")
_SUBJECT = "the signed statement"


@dataclass(frozen=True, slots=True)
class Signable:
    """A kind of thing that engineers sign with the keys of their trust file."""

    noun: str
    media_type: str  # of the statement
    error: type[UntrustedBundle | UntrustedRelease]  # raised for a signature that is rejected
    advice: str = ""  # for a thing that is not signed


BUNDLE = Signable(
    "bundle", "application/vnd.moonfed.bundle+json", UntrustedBundle, "; sign it with: moonfed-export sign BUNDLE"
)
RELEASE = Signable("release", "application/vnd.moonfed.release+json", UntrustedRelease)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One version of a named bundle or release, and until when it may be used."""

    name: str
    version: int  # a device rejects a bundle's version older than the newest that it has accepted under this name
    manifest: str  # sha256, in hexadecimal
    expires: int  # seconds since the epoch

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME:
            raise InvalidInput(
                f"name has {len(self.name)} characters; it must have 1 to {MAX_NAME}",
                field="length of name",
                value=len(self.name),
            )
        require_line("name", self.name)
        require_whole("version", self.version, 1, MAX_NUMBER)
        require_whole("expires", self.expires, 1, MAX_NUMBER)
        require(bool(SHA256.fullmatch(self.manifest)), "manifest", self.manifest[:64], "a sha256 in hexadecimal")

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode(asdict(self))

    @classmethod
    def from_bytes(cls, content: bytes) -> Statement:
        """Read a statement; InvalidInput says what is wrong."""
        types = {"name": str, "version": int, "manifest": str, "expires": int}
        return cls(**canonical.fields(canonical.decode(content, _SUBJECT), _SUBJECT, types))
