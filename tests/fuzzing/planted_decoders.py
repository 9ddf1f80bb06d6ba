"""Decoders with planted faults, to test the campaign itself."""

from __future__ import annotations

import os
import signal

from moonfed.errors import InvalidInput
from tests.fuzzing.decoder import Decoder


def _raise(content: bytes) -> None:
    if content[:4] != b"seed":
        raise InvalidInput("the input must start with 'seed'")
    if content[4:5] == b"\xff":
        raise KeyError("planted")


def _die(content: bytes) -> None:
    if b"\xff" in content:
        os.kill(os.getpid(), signal.SIGKILL)


SEEDS = [b"seed", b"seed 17"]
DECODERS = (
    Decoder(name="raising", read=_raise, seeds=lambda: SEEDS, largest=32),
    Decoder(name="dying", read=_die, seeds=lambda: SEEDS, largest=32),
)
