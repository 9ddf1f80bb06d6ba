"""Tokenizers of Hugging Face whose texts moonfed cuts alike, and the others, which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.export.bundle_recipe import BundleRecipe, read_vocabulary
from moonfed.export.weights.pretrained import PretrainedWeights
from moonfed.export.weights.source import tokenizer_file
from moonfed.export.weights.tokenizer import tokenizer_vocabulary
from tests.support.refusals import refused

VOCABULARY = {"[PAD]": 0, "a": 1, "b": 2, " ": 3}
SPECIAL = [{"id": 0, "content": "[PAD]", "single_word": False, "lstrip": False, "rstrip": False, "special": True}]
CHARACTERS = {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False}
BPE = {"type": "BPE", "vocab": VOCABULARY, "merges": [], "byte_fallback": False}
WORDS = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[PAD]"}
PIECES = {"type": "WordPiece", "vocab": {"a": 2, "ab": 1}, "continuing_subword_prefix": ""}


def tokenizer(model: dict[str, Any] = BPE, **parts: Any) -> dict[str, Any]:
    empty = {"normalizer": None, "pre_tokenizer": None, "post_processor": None}
    return {"version": "1.0", "added_tokens": SPECIAL, **empty, "model": model, **parts}


@pytest.mark.parametrize(
    ("document", "tokens"),
    [
        (tokenizer(), ("[PAD]", "a", "b", " ")),
        (tokenizer(WORDS, pre_tokenizer=CHARACTERS), ("[PAD]", "a", "b", " ")),
        (tokenizer(PIECES), ("[PAD]", "ab", "a")),
    ],
)
def test_tokenizers_that_take_the_longest_match_are_read(
    document: dict[str, Any], tokens: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert read_vocabulary(tmp_path / "tokenizer.json") == tokens


@pytest.mark.parametrize(
    "document",
    [
        tokenizer(BPE | {"merges": ["a b"]}),
        tokenizer(BPE | {"byte_fallback": True}),
        tokenizer(BPE | {"vocab": {**VOCABULARY, "ab": 4}}),
        tokenizer(BPE | {"vocab": {**VOCABULARY, "c": 5}}),
        tokenizer(WORDS),
        tokenizer(WORDS, pre_tokenizer={"type": "Whitespace"}),
        tokenizer(PIECES | {"continuing_subword_prefix": "##"}),
        tokenizer(PIECES, pre_tokenizer=CHARACTERS),
        tokenizer({"type": "Unigram", "vocab": [["a", -1.0]]}),
        tokenizer(normalizer={"type": "Lowercase"}),
        tokenizer(post_processor={"type": "TemplateProcessing"}),
        tokenizer(added_tokens=[]),
        tokenizer(added_tokens=[SPECIAL[0] | {"lstrip": True}]),
        {},
        {"model": 3},
    ],
)
def test_others_are_refused(document: dict[str, Any]) -> None:
    with refused(InvalidInput, "vocabulary", "tokenizer.json"):
        tokenizer_vocabulary(document, Path("tokenizer.json"))


def test_other_tokens_than_those_of_the_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer()))
    assert tokenizer_file(f"{tmp_path}/tokenizer.json") is None
    weights = PretrainedWeights(source="lm", sha256="0" * 64, tensors={}, tokenizer=tokenizer_file(f"hf:{tmp_path}"))

    def start(*tokens: str) -> None:
        sample = InputSpec(kind="tokens", shape=(4,), vocabulary=tokens)
        target = TargetSpec(kind="next", shape=(0,))
        recipe = BundleRecipe(name="b", model="gru", input=sample, task="next-token", target=target)
        recipe.starting_from(weights)

    start("[PAD]", "a", "b", " ")
    with refused(InvalidInput, "vocabulary", "4 tokens, in place 3 'c'", "4 tokens, in place 3 'b'"):
        start("[PAD]", "a", "c", " ")
    with refused(InvalidInput, "vocabulary", "3 tokens", "4 tokens, in place 4 ' '"):
        start("[PAD]", "a", "b")
