"""What `moonfed-client run` is told on its command line."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass

from moonfed.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Checked when built; InvalidInput names the option."""

    state: str
    data: str  # FOLDER, FILE.npz or module:callable
    accelerator: str  # cpu or cuda
    threads: int | None  # torch's; None: its own choice
    holdout: float  # fraction of the samples that only evaluate
    insecure: bool
    coordinator: str  # host:port; empty: the identity's
    name: str  # empty: the identity's, or without TLS the host's
    max_steps: int | None = None  # optimiser steps in one round; None: all that the round asks for

    def __post_init__(self) -> None:
        if self.accelerator not in ("cpu", "cuda"):
            raise InvalidInput(f"device is {self.accelerator!r}; it must be 'cpu' or 'cuda'")
        for option, value in (("threads", self.threads), ("max-steps", self.max_steps)):
            if value is not None and value < 1:
                raise InvalidInput(f"{option} is {value}; it must be a whole number from 1")
        if not 0 <= self.holdout < 1:
            raise InvalidInput(f"holdout is {self.holdout}; it must be at least 0 and less than 1")
        if self.insecure and not self.coordinator:
            raise InvalidInput("coordinator is missing; --insecure needs --coordinator HOST:PORT")
        if self.name and not self.insecure:
            raise InvalidInput(
                f"name is {self.name!r}; it goes with --insecure only, an enrolled device has its name already"
            )

    @property
    def plain_name(self) -> str:
        """The device's name where no certificate names it."""
        return self.name or socket.gethostname()

    def to_json(self) -> str:
        """For the process that `run` becomes."""
        return json.dumps(asdict(self))
