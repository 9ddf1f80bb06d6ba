"""A patch for programs in tests, see `forked_process`: `profile` and `check` start no trainer to measure its memory."""

from __future__ import annotations

from moonfed.edge_client.resources import trainer_runtime
from tests.support.trainer_memory import shared_trainer_memory

trainer_runtime.trainer_memory = shared_trainer_memory
