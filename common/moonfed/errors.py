"""The hierarchy of moonfed's errors.

MoonfedError                 any error that moonfed can explain in one sentence
├── InvalidInput             a setting, an argument or a message is not allowed; names the field, the value, the allowed
│   └── SchemaMismatch       tensors do not match the manifest; names the tensor
├── NotFound                 no such run, device, model or file
├── AlreadyExists            the name is taken, or a different update already counts
├── WrongState               wrong state: a stale round, a run that has ended
│   └── TooLate              the round is closed: when to retry
├── Denied                   the caller is authenticated but not authorised
├── Untrusted                the two sides do not trust each other: certificate, authority or join token
│   ├── Renamed              an operator renamed the device, which must renew its certificate
│   └── WrongServer          another server answers at the coordinator's address
├── VersionMismatch          incompatible versions; names both
├── Corrupt                  bytes do not match their sha256
├── ResourceExhausted        a size, a disk or a quota is full
├── TrainingFailed           the plan or the training process failed on this device
├── UnsafePlan               a plan contains something that is not allowed in plans; it was not run
├── UntrustedBundle          a bundle's signature is missing, invalid, expired or not trusted; it was not opened
├── UntrustedRelease         a released model's signature is missing, invalid or not trusted; it was not loaded
├── RunStopped               the watched run was stopped by an operator
├── RunFailed                the watched run has failed
└── Unavailable              the other side cannot be reached
    └── Overloaded           the server is overloaded, or the caller exceeds its rate

They carry no transport codes: moonfed.transport.grpc_status maps them to gRPC and back, moonfed.command_line.programs
to exit codes. Each has a page, docs/errors/SLUG.md, which messages refer to.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import ClassVar


class MoonfedError(Exception):
    """An error that moonfed can explain in one sentence.

    `field`, `value`: what the sentence is about, such as a setting or a run. `allowed`: what the field must be. They
    are None where they do not apply, and do not leave the process. Without a sentence, they form it: "FIELD is VALUE;
    it must be ALLOWED", or "FIELD is VALUE" and `rest`, which begins with its comma or semicolon.
    """

    slug: ClassVar[str] = "internal-error"  # of its page in docs/errors

    def __init__(
        self,
        sentence: str = "",
        *,
        field: str | None = None,
        value: object = None,
        allowed: str | None = None,
        rest: str = "",
    ) -> None:
        super().__init__(sentence or f"{field} is {shown(value)}{rest or f'; it must be {allowed}'}")
        self.field, self.value, self.allowed = field, value, allowed

    @property
    def docs(self) -> str:
        """The page that explains the error, such as `errors/late-update`."""
        return f"errors/{self.slug}"


class InvalidInput(MoonfedError):
    """A setting, an argument or a message is not allowed."""

    slug = "invalid-input"


class SchemaMismatch(InvalidInput):
    """Tensors do not match the manifest."""

    slug = "schema-mismatch"


class NotFound(MoonfedError):
    """There is no such run, device, model or file."""

    slug = "not-found"


class AlreadyExists(MoonfedError):
    """The name is taken, or a different update already counts."""

    slug = "already-exists"


class WrongState(MoonfedError):
    """The call is invalid in the current state, such as an update for a closed round."""

    slug = "wrong-state"


class TooLate(WrongState):
    """The round is not open or needs no more updates.

    `retry_after_seconds`: estimated time until the next round opens; 0: unknown.
    """

    slug = "late-update"

    def __init__(self, sentence: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds


class Denied(MoonfedError):
    """The caller is authenticated but not authorised."""

    slug = "permission-denied"


class Untrusted(MoonfedError):
    """A certificate, an authority or a join token is not accepted."""

    slug = "untrusted"


class Renamed(Untrusted):
    """A device's certificate has its former name; the device may only renew it, under its new name."""

    slug = "device-renamed"


class WrongServer(Untrusted):
    """Another server, such as a captive portal, answers at the coordinator's address."""

    slug = "wrong-server"


class VersionMismatch(MoonfedError):
    """The two sides have incompatible versions."""

    slug = "version-mismatch"


class Corrupt(MoonfedError):
    """Bytes do not match their sha256 or their format."""

    slug = "corrupt"


class ResourceExhausted(MoonfedError):
    """A message is too large, or a disk or a quota is full."""

    slug = "resource-exhausted"


class TrainingFailed(MoonfedError):
    """The plan or the training process failed on this device."""

    slug = "training-failed"


class UnsafePlan(MoonfedError):
    """A plan contains something that is not allowed: code that runs at loading, an unlisted operator, a false size."""

    slug = "unsafe-plan"


class UntrustedBundle(MoonfedError):
    """A bundle's signature is missing, invalid, expired, outdated, or made with an untrusted key."""

    slug = "bundle-rejected"


class UntrustedRelease(MoonfedError):
    """A released model's signature is missing or invalid, is for other files, or was made with an untrusted key."""

    slug = "release-rejected"


class RunStopped(MoonfedError):
    """The run that a command waited for was stopped by an operator."""

    slug = "run-stopped"


class RunFailed(MoonfedError):
    """The run that a command waited for has failed."""

    slug = "run-failed"


class Unavailable(MoonfedError):
    """The other side is unreachable; a retry may succeed."""

    slug = "unavailable"


class Overloaded(Unavailable):
    """The other side is overloaded, or this caller exceeds its rate; a retry may succeed."""

    slug = "overloaded"


def shown(value: object) -> str:
    """Return a value as sentences show it: texts and paths in quotes."""
    return repr(str(value)) if isinstance(value, str | PurePath) else str(value)


def with_reference(sentence: str, slug: str) -> str:
    """Return a message that ends with the page that explains it, unless it does already."""
    return sentence if sentence.endswith(")") and " (docs: errors/" in sentence else f"{sentence} (docs: errors/{slug})"


def explained(error: MoonfedError) -> str:
    """Return an error's sentence, and the page that explains it."""
    return with_reference(str(error), error.slug)


def error_from_process(name: str, sentence: str) -> MoonfedError:
    """Rebuild an error that one of our processes reported to another; TrainingFailed for an unknown name."""
    found = globals().get(name)
    kind = found if isinstance(found, type) and issubclass(found, MoonfedError) else TrainingFailed
    return kind(sentence)
