"""Every decoder that is fuzzed."""

from __future__ import annotations

from tests.fuzzing.contract_decoders import CONTRACT_DECODERS
from tests.fuzzing.graph_decoders import GRAPH_DECODERS
from tests.fuzzing.message_decoders import MESSAGE_DECODERS
from tests.fuzzing.plan_decoders import PLAN_DECODERS
from tests.fuzzing.serving_decoders import SERVING_DECODERS
from tests.fuzzing.signing_decoders import SIGNING_DECODERS

DECODERS = (
    *CONTRACT_DECODERS,
    *MESSAGE_DECODERS,
    *SERVING_DECODERS,
    *SIGNING_DECODERS,
    *PLAN_DECODERS,
    *GRAPH_DECODERS,
)
