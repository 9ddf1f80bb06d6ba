"""The first contact with the coordinator: until then another server at its address means a wrong setting.

Later it means a network that answers in the coordinator's place, such as a captive portal, and passes.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from moonfed.errors import MoonfedError, WrongServer
from moonfed.files import write_durably
from moonfed.identity import Identity

FILE = "connected-to"  # in the state directory: the sha256 of the authority of a coordinator that has answered
ATTEMPTS = 3  # before the first contact

log = logging.getLogger(__name__)


class FirstContact:
    """A record, in the state directory, that the coordinator of this identity has answered once."""

    def __init__(self, state: Path, identity: Identity | None) -> None:
        self._file = state / FILE
        self._authority = hashlib.sha256(identity.ca).hexdigest().encode() if identity else b""
        self._happened = self._file.is_file() and self._file.read_bytes() == self._authority
        self._attempts = 0

    def succeeded(self) -> None:
        """Record that the coordinator has answered."""
        if not self._happened:
            self._happened = True
            try:
                write_durably(self._file, self._authority, mode=0o600)
            except OSError as error:  # such as a full disk: then the next start is a first one again
                log.debug("cannot write %s: %s", self._file, error)

    def may_retry(self, reason: MoonfedError) -> bool:
        """Return whether a final error may pass: another server's answer, without limit after the first contact."""
        self._attempts += 1
        return isinstance(reason, WrongServer) and (self._happened or self._attempts < ATTEMPTS)
