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

They carry no transport codes: moonfed.grpc_status maps them to gRPC and back, moonfed.command_line to exit codes.
"""


class MoonfedError(Exception):
    """An error that moonfed can explain in one sentence."""


class InvalidInput(MoonfedError):
    """A setting, an argument or a message is not allowed."""


class SchemaMismatch(InvalidInput):
    """Tensors do not match the manifest."""


class NotFound(MoonfedError):
    """There is no such run, device, model or file."""


class AlreadyExists(MoonfedError):
    """The name is taken, or a different update already counts."""


class WrongState(MoonfedError):
    """The call is invalid in the current state, such as an update for a closed round."""


class TooLate(WrongState):
    """The round is not open or needs no more updates.

    `retry_after_seconds`: estimated time until the next round opens; 0: unknown.
    """

    def __init__(self, sentence: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds


class Denied(MoonfedError):
    """The caller is authenticated but not authorised."""


class Untrusted(MoonfedError):
    """A certificate, an authority or a join token is not accepted."""


class Renamed(Untrusted):
    """A device's certificate has its former name; the device may only renew it, under its new name."""


class WrongServer(Untrusted):
    """Another server, such as a captive portal, answers at the coordinator's address."""


class VersionMismatch(MoonfedError):
    """The two sides have incompatible versions."""


class Corrupt(MoonfedError):
    """Bytes do not match their sha256 or their format."""


class ResourceExhausted(MoonfedError):
    """A message is too large, or a disk or a quota is full."""


class TrainingFailed(MoonfedError):
    """The plan or the training process failed on this device."""


class UnsafePlan(MoonfedError):
    """A plan contains something that is not allowed: code that runs at loading, an unlisted operator, a false size."""


class UntrustedBundle(MoonfedError):
    """A bundle's signature is missing, invalid, expired, outdated, or made with an untrusted key."""


class UntrustedRelease(MoonfedError):
    """A released model's signature is missing or invalid, is for other files, or was made with an untrusted key."""


class RunStopped(MoonfedError):
    """The run that a command waited for was stopped by an operator."""


class RunFailed(MoonfedError):
    """The run that a command waited for has failed."""


class Unavailable(MoonfedError):
    """The other side is unreachable; a retry may succeed."""


class Overloaded(Unavailable):
    """The other side is overloaded, or this caller exceeds its rate; a retry may succeed."""


def error_from_process(name: str, sentence: str) -> MoonfedError:
    """Rebuild an error that one of our processes reported to another; TrainingFailed for an unknown name."""
    found = globals().get(name)
    kind = found if isinstance(found, type) and issubclass(found, MoonfedError) else TrainingFailed
    return kind(sentence)
