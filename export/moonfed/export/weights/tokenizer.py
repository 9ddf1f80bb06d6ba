"""Vocabularies of tokenizer.json, Hugging Face's file, where its tokenizer cuts texts as moonfed does.

That is into the longest token that matches, anywhere in a text (`moonfed.data.texts`): so do tokenizers of single
characters, and WordPiece within a text that nothing has split. Merges, scores, and rules about words do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.errors import InvalidInput

TOKENIZER_FILE = "tokenizer.json"
ALLOWED = (
    "a tokenizer of single characters, or WordPiece without a prefix, with padding as token 0, and without normalizer "
    "and post-processor"
)
_CHARACTERS = ({"String": ""}, {"Regex": ""}, {"Regex": "[\\s\\S]"})  # patterns that split between all of them
_TRIMMING = ("single_word", "lstrip", "rstrip")  # of added tokens: rules about the text around them
_Tokenizer = Mapping[str, Any]


def tokenizer_vocabulary(document: _Tokenizer, path: Path) -> tuple[str, ...]:
    """Return the tokens of a tokenizer.json, in order; raise InvalidInput if moonfed would cut texts in another way."""
    try:
        added = document.get("added_tokens") or []
        special = {token["content"]: token["id"] for token in added}
        reason = _unlike(document, added) or _unlike_model(document, special)
        places = {} if reason else {**document["model"]["vocab"], **special}
        tokens = tuple(sorted(places, key=places.__getitem__))
    except (KeyError, TypeError, AttributeError):
        reason, places, tokens = "is no tokenizer", {}, ()
    if not reason and [places[token] for token in tokens] != list(range(len(tokens))):
        reason = "has gaps between its tokens' numbers"
    if not reason and tokens[0] not in special:
        reason = f"has {tokens[0]!r} as token 0"
    if reason:
        raise InvalidInput(field="vocabulary", value=str(path), rest=f", which {reason}; it must be {ALLOWED}")
    return tokens


def _unlike(document: _Tokenizer, added: Sequence[Mapping[str, Any]]) -> str:
    """Return in what the steps around a model differ from none; empty if in nothing."""
    for part in ("normalizer", "post_processor"):
        if document.get(part):
            return f"has the {part} {document[part]['type']}"
    split = document.get("pre_tokenizer")
    if split and not (split["type"] == "Split" and split["pattern"] in _CHARACTERS):
        return f"has the pre-tokenizer {split['type']}"
    trimming = any(token.get(flag) for token in added for flag in _TRIMMING)
    return "has added tokens that depend on the text around them" if trimming else ""


def _unlike_model(document: _Tokenizer, special: Mapping[str, int]) -> str:
    """Return in what a model differs from the longest token that matches; empty if in nothing."""
    model, split = document["model"], bool(document.get("pre_tokenizer"))
    kind = model["type"]
    if kind == "WordPiece" and not split:
        prefix = model["continuing_subword_prefix"]
        return f"is WordPiece with the prefix {prefix!r}" if prefix else ""
    if kind == "BPE" and (model["merges"] or model.get("byte_fallback")):
        return "is BPE with merges" if model["merges"] else "is BPE of bytes"
    if not (kind == "BPE" or (kind == "WordLevel" and split)):
        return f"is {kind}"
    longer = next((token for token in model["vocab"] if len(token) != 1 and token not in special), None)
    return "" if longer is None else f"has the token {longer!r}, but makes tokens of one character"
