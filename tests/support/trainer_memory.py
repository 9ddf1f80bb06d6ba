"""The memory of a fresh trainer, which `profile` measures, measured once per session."""

from __future__ import annotations

from moonfed.edge_client.resources.trainer_runtime import TRAINER_SCRIPT, trainer_memory
from tests.support.session_cache import cached


def shared_trainer_memory() -> int:
    """Return what `trainer_memory` returned when it was first called."""
    return int(cached(TRAINER_SCRIPT.encode(), lambda path: path.write_text(str(trainer_memory()))).read_text())
