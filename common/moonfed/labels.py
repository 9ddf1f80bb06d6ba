"""Labels of devices, such as site=berlin, by which runs select them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moonfed.errors import InvalidInput

SANDBOX_LABEL = "sandbox"  # each device sets it to the level at which it isolates plans
INFERENCE_ONLY = "inference_only"  # in the platform of a device without data, which never trains
MAX_LABELS, MAX_WORD = 64, 200  # of one device or run; characters of a name or value


def parse_labels(words: Sequence[str]) -> dict[str, str]:
    """Parse labels, each NAME=VALUE; raise InvalidInput for anything else, or a repeated name."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(field="label", value=word, allowed="NAME=VALUE, such as site=berlin")
        if name in labels:
            raise InvalidInput(
                field="label", value=word, rest=f", but {name}={labels[name]} is given already; give each name once"
            )
        labels[name] = value
    check_labels(labels)
    return labels


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise InvalidInput for invalid labels."""
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"there are {len(labels)} labels; there may be at most {MAX_LABELS}")
    for name, value in labels.items():
        if not all(0 < len(word) <= MAX_WORD and word.isprintable() for word in (name, value)):
            raise InvalidInput(
                field="label",
                value=write_labels({name[:MAX_WORD]: value[:MAX_WORD]}),
                rest=f"; name and value must be 1 to {MAX_WORD} printable characters",
            )


def write_labels(labels: Mapping[str, str]) -> str:
    """Format labels for people."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def lacking(labels: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the required labels that are missing."""
    return {name: value for name, value in wanted.items() if labels.get(name) != value}
