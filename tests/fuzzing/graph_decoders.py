"""The inspection of graph containers, and what runs them."""

from __future__ import annotations

import json

from moonfed.errors import TrainingFailed, UnsafePlan, VersionMismatch
from tests.fuzzing.decoder import Decoder
from tests.fuzzing.graph_mutants import UNCHANGED, load_and_run, load_and_run_mutant
from tests.support.graph_containers import linear

REJECTIONS = (UnsafePlan, VersionMismatch, TrainingFailed)
GRAPH_DECODERS = (
    Decoder(
        name="graph_container",
        read=load_and_run,
        seeds=lambda: [json.dumps(linear()).encode()],
        rejections=REJECTIONS,
        largest=16384,
    ),
    Decoder(
        name="graph_mutants", read=load_and_run_mutant, seeds=lambda: [UNCHANGED], rejections=REJECTIONS, largest=64
    ),
)
