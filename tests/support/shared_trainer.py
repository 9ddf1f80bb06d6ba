"""A patch for programs in tests, see `forked_process`: `profile` starts no trainer to measure its memory."""

from __future__ import annotations

from moonfed.edge_client.profile import measure
from tests.support.trainer_memory import shared_trainer_memory

measure.trainer_memory = shared_trainer_memory
