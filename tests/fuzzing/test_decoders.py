"""A short, deterministic fuzzing of every decoder: the valid inputs, past findings, and mutants of both."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzzing.all_decoders import DECODERS
from tests.fuzzing.decoder import CORPUS, Decoder, location
from tests.fuzzing.mutation import mutants

MUTANTS = 300
SLOW_MUTANTS = 60  # of those that torch loads or runs


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_only_our_own_errors_escape(decoder: Decoder) -> None:
    seeds = list(decoder.seeds())
    for seed in seeds:
        decoder.read(seed)  # otherwise mutants would end at the first check
    count = SLOW_MUTANTS if decoder.name in ("plan_code", "plan_pickle", "graph_mutants") else MUTANTS
    stored = list(decoder.stored().values())
    inputs = [b"", *stored, *islice(mutants([*seeds, *stored], 1, decoder.largest), count)]
    escaped = {location(error) for content in inputs if (error := decoder.check(content))}
    assert escaped == set()


def test_every_stored_input_belongs_to_a_decoder() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {decoder.name for decoder in DECODERS}
    assert len({decoder.name for decoder in DECODERS}) == len(DECODERS)
