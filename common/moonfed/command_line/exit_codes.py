"""Exit codes of all programs, by the class of the error."""

from __future__ import annotations

from moonfed import errors

# argparse and typer exit with 2 for a wrong command line; a wrong value is the same kind of mistake.
_EXIT_CODES: tuple[tuple[type[errors.MoonfedError], int], ...] = (
    (errors.InvalidInput, 2),
    (errors.NotFound, 3),
    (errors.AlreadyExists, 4),
    (errors.WrongState, 4),
    (errors.Denied, 5),
    (errors.Untrusted, 5),
    (errors.VersionMismatch, 6),
    (errors.Corrupt, 7),
    (errors.ResourceExhausted, 8),
    (errors.TrainingFailed, 9),
    (errors.Unavailable, 10),
    (errors.UnsafePlan, 11),
    (errors.UntrustedBundle, 12),
    (errors.UntrustedRelease, 12),
    (errors.RunStopped, 13),
    (errors.RunFailed, 14),
)


def exit_code(error: errors.MoonfedError) -> int:
    """Return the exit code of an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
