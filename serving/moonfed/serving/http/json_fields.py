"""Typed access to the JSON of a request; every function raises InvalidInput, naming the key."""

from __future__ import annotations

import json
from typing import Any

from moonfed.errors import InvalidInput, ResourceExhausted

Json = dict[str, Any]
MAX_BYTES = 16 << 20  # bytes of JSON; larger tensors must be sent as binary data
MAX_CONTAINERS = 1 << 20  # arrays and objects; each takes at least 60 bytes in memory for 2 or 3 bytes of JSON
MAX_VALUE = 1 << 63  # of lengths in shapes, and of parameters


def parse_object(content: bytes | bytearray) -> Json:
    """Parse a JSON object; raise ResourceExhausted if it is too large."""
    if len(content) > MAX_BYTES:
        raise ResourceExhausted(f"the JSON is {len(content)} bytes, at most {MAX_BYTES} are accepted; use binary data")
    if content.count(b"[") + content.count(b"{") > MAX_CONTAINERS:
        raise ResourceExhausted(f"the JSON has more than {MAX_CONTAINERS} arrays and objects; use binary data")
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise InvalidInput("failed to parse the request JSON buffer: it is nested too deeply") from error
    except ValueError as error:
        raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput("failed to parse the request JSON buffer: it must be an object")
    return document


def objects(document: Json, key: str) -> list[Json]:
    """Return an array of objects."""
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidInput(f"Unable to parse '{key}': it must be an array of objects")
    return value


def text(document: Json, key: str, default: str | None = None) -> str:
    """Return a string; `default` None makes it mandatory."""
    value = document.get(key, default)
    if not isinstance(value, str):
        raise InvalidInput(f"Unable to parse '{key}': it must be a string")
    encode_text(value, key)
    return value


def encode_text(value: str, name: str) -> bytes:
    """Encode text; raise InvalidInput for a lone surrogate, which JSON can write but UTF-8 cannot."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"Unable to parse '{name}': it contains a lone surrogate") from error


def shape(tensor: Json) -> list[int]:
    """Return a tensor's shape."""
    value = tensor.get("shape")
    if not isinstance(value, list) or not all(type(side) is int and 0 <= side < MAX_VALUE for side in value):
        raise InvalidInput("Unable to parse 'shape': it must be an array of whole numbers, 0 or more")
    return value


def parameters(document: Json) -> Json:
    """Return the `parameters` object, empty if absent."""
    value = document.get("parameters", {})
    if not isinstance(value, dict):
        raise InvalidInput("Unable to parse 'parameters': it must be an object")
    return value


def whole_number(parameters: Json, key: str, default: int) -> int:
    """Return an integer of 0 or more."""
    value = parameters.get(key, default)
    if type(value) is not int or not 0 <= value < MAX_VALUE:
        raise InvalidInput(f"Unable to parse '{key}': it must be a whole number, 0 or more")
    return value


def flag(parameters: Json, key: str, default: bool) -> bool:
    """Return a boolean."""
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"Unable to parse '{key}': it must be true or false")
    return value
