"""The errors of moonfed, drawn once.

MoonfedError                 something moonfed can explain in one sentence
├── InvalidInput             a setting, an argument or a message is not allowed; names the field, the value, the allowed
│   └── SchemaMismatch       tensors do not match what the manifest says; names the tensor
├── NotFound                 no such run, device, model or file
├── AlreadyExists            the name is taken, or a different update already stands
├── WrongState               not now: a stale round, a run that has ended
│   └── TooLate              the round has closed, or never was: when to come back
├── Denied                   who you are is known, and you may not
├── Untrusted                the two sides do not trust each other: certificate, authority or join token
├── VersionMismatch          the two sides cannot understand each other; names both versions
├── Corrupt                  bytes are not what their sha256 says
├── ResourceExhausted        a size, a disk or a quota is full
├── TrainingFailed           the plan or the training process failed on this device
└── Unavailable              the other side cannot be reached at present
    └── Overloaded           it has too much to do, or one caller asks too much of it

They carry no transport codes: moonfed.grpc_status maps them to gRPC and back, moonfed.command_line to exit codes.
"""


class MoonfedError(Exception):
    """Anything that moonfed can explain to a person in one sentence."""


class InvalidInput(MoonfedError):
    """A setting, an argument or a message is not allowed."""


class SchemaMismatch(InvalidInput):
    """Tensors do not match what the manifest says."""


class NotFound(MoonfedError):
    """There is no such run, device, model or file."""


class AlreadyExists(MoonfedError):
    """The name is taken, or a different update already stands."""


class WrongState(MoonfedError):
    """The call does not fit the present state, such as an update for a round that has closed."""


class TooLate(WrongState):
    """The round is not open or needs no more updates.

    `retry_after_seconds`: estimated time until the next round opens; 0: unknown.
    """

    def __init__(self, sentence: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(sentence)
        self.retry_after_seconds = retry_after_seconds


class Denied(MoonfedError):
    """The caller is known and may not do this."""


class Untrusted(MoonfedError):
    """A certificate, an authority or a join token is not accepted."""


class VersionMismatch(MoonfedError):
    """The two sides speak versions that do not fit together."""


class Corrupt(MoonfedError):
    """Bytes are not what their sha256 or their format says."""


class ResourceExhausted(MoonfedError):
    """A message is too large, or a disk or a quota is full."""


class TrainingFailed(MoonfedError):
    """The plan or the training process failed on this device."""


class Unavailable(MoonfedError):
    """The other side cannot be reached at present; the same call may succeed later."""


class Overloaded(Unavailable):
    """The other side has too much to do, or this caller asks too much of it; the same call may succeed later."""


def told_by_a_process(name: str, sentence: str) -> MoonfedError:
    """Rebuild an error that one of our processes reported to another; TrainingFailed for an unknown name."""
    found = globals().get(name)
    kind = found if isinstance(found, type) and issubclass(found, MoonfedError) else TrainingFailed
    return kind(sentence)
