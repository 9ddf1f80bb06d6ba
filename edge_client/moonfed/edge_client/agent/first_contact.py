"""Record of the first contact with the coordinator.

Before it, another server at the address means a wrong setting. Afterwards, it means that the network answers in the
coordinator's place, like a captive portal, which is temporary.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from moonfed.errors import MoonfedError, WrongServer
from moonfed.files import write_durably
from moonfed.transport.identity import Identity

FILE = "connected-to"  # in the state directory: the sha256 of the answering coordinator's authority
ATTEMPTS = 3  # attempts before the first contact

_log = logging.getLogger(__name__)


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
            except OSError as error:  # for example a full disk: the next start then counts as a first contact again
                _log.debug("cannot write %s: %s", self._file, error)

    def may_retry(self, reason: MoonfedError) -> bool:
        """Return whether to retry after a final error: only if another server answered; limited at first contact."""
        self._attempts += 1
        return isinstance(reason, WrongServer) and (self._happened or self._attempts < ATTEMPTS)
