"""The version of a device's state directory: one for all that is in it, in STATE/format.

Before anything there is opened, each command and `Predictor` check it, so that a release that does not know a directory
changes nothing: a device's own tensors exist nowhere else. This module imports neither torch nor numpy.
"""

from __future__ import annotations

from pathlib import Path

from moonfed.files import make_directories, read_regular, write_durably
from moonfed.format_version import require_readable

FORMAT = "moonfed-device/1"
FORMAT_FILE = "format"
_MAX_BYTES = 1000


def require_readable_state(state: Path) -> None:
    """Raise VersionMismatch if another version is noted in a state directory; one without a note is new."""
    file = state / FORMAT_FILE
    if file.exists():
        noted = read_regular(file, _MAX_BYTES).decode(errors="replace").strip()
        require_readable(f"the device's state in {state}", noted, (FORMAT,))


def note_version(state: Path) -> None:
    """Create a state directory if there is none, and note its version durably; raise as `require_readable_state`."""
    require_readable_state(state)
    if not (state / FORMAT_FILE).exists():
        make_directories(state, mode=0o700)
        write_durably(state / FORMAT_FILE, f"{FORMAT}\n".encode(), mode=0o600)
