"""Encodings: what a model's file looks like on the wire; how it is written and read is in moonfed.encoded_models.

float32    the file as it is
bfloat16   half the bytes: the upper halves of the float32s, rounded
int8       about a quarter: whole numbers from -127 to 127, and one scale for each block of 256 values of a tensor
…+zstd     the whole file compressed by Zstandard

An encoded file is a safetensors file, too. Statistics (BatchNorm's) are bfloat16 where parameters are int8: they are
few, and a rounded variance stays positive. This module is used by a device's light process, so it imports no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from moonfed.errors import InvalidInput
from moonfed.schema import BFLOAT16, INT8, TensorSpec

Number = Literal["float32", "bfloat16", "int8"]
ENCODED_MODEL = "encoded_model"  # the role under which an encoded model is kept beside the model itself
BLOCK = 256  # values of a tensor that share a scale
COMPRESSED = "+zstd"
_VALUES, _SCALES = "values:", "scales:"  # before a tensor's name in a file of int8, which so has no name twice


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a model's numbers become, and whether the file is compressed."""

    number: Number = "float32"
    compressed: bool = False

    @property
    def lossy(self) -> bool:
        """Whether decoding gives other numbers than were encoded."""
        return self.number != "float32"

    def __str__(self) -> str:
        return self.number + COMPRESSED * self.compressed


PLAIN = Encoding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """A run's: of global models on their way down to devices, and of what comes up from them."""

    down: Encoding = PLAIN
    up: Encoding = PLAIN

    @property
    def needed(self) -> frozenset[str]:
        """What a device must know beside float32, which all do."""
        return frozenset({str(self.down), str(self.up)} - {str(PLAIN)})

    @property
    def changes(self) -> bool:
        """Whether devices send how training changed the model, in place of the trained model.

        A change is smaller than the model, so rounding it loses less. And if the model was rounded on its way down, the
        change can be added to the coordinator's own, which was not.
        """
        return self.down.lossy or self.up.lossy

    @property
    def updates_encoded(self) -> bool:
        """Whether what comes up is anything but the trained model's own file."""
        return self.changes or self.up != PLAIN

    def to_document(self) -> dict[str, str]:
        """As JSON values."""
        return {"down": str(self.down), "up": str(self.up)}

    @classmethod
    def from_document(cls, document: Mapping[str, str]) -> Encodings:
        """Reads what `to_document` wrote; what is not there is float32."""
        return cls(**{field: parse_encoding(field, document.get(field, "")) for field in ("down", "up")})


KNOWN = tuple(str(Encoding(number, compressed)) for number in get_args(Number) for compressed in (False, True))


def parse_encoding(field: str, text: str) -> Encoding:
    """An encoding by its name; nothing stands for float32. InvalidInput names the field."""
    if not text:
        return PLAIN
    if text not in KNOWN:
        raise InvalidInput(f"{field} is {text[:40]!r}; it must be one of {', '.join(KNOWN)}")
    name = text.removesuffix(COMPRESSED)
    number = next(known for known in get_args(Number) if known == name)
    return Encoding(number, text != name)


def parse_encodings(downlink: str, uplink: str) -> Encodings:
    """Both of a run by their names, as messages and options have them; InvalidInput names the one that is none."""
    return Encodings(down=parse_encoding("downlink_encoding", downlink), up=parse_encoding("uplink_encoding", uplink))


def encoded_specs(specs: Sequence[TensorSpec], encoding: Encoding) -> tuple[TensorSpec, ...]:
    """The tensors of a file that holds these in an encoding, uncompressed, in their order in the file."""
    if encoding.number == "float32":
        return tuple(specs)
    if encoding.number == "bfloat16":
        return tuple(TensorSpec(spec.name, spec.shape, spec.kind, BFLOAT16) for spec in specs)
    parameters = [spec for spec in specs if spec.kind == "parameter"]
    statistics = [spec for spec in specs if spec.kind == "statistic"]
    return (  # the widest numbers first, as the safetensors library orders them, so that all lie aligned
        *(TensorSpec(scales_name(spec), (blocks(spec.size),), spec.kind) for spec in parameters),
        *(TensorSpec(values_name(spec, encoding), spec.shape, spec.kind, BFLOAT16) for spec in statistics),
        *(TensorSpec(values_name(spec, encoding), spec.shape, spec.kind, INT8) for spec in parameters),
    )


def values_name(spec: TensorSpec, encoding: Encoding) -> str:
    """What a tensor's values are called in an encoded file."""
    return _VALUES + spec.name if encoding.number == "int8" else spec.name


def scales_name(spec: TensorSpec) -> str:
    """What the scales of a tensor of int8 are called."""
    return _SCALES + spec.name


def blocks(size: int) -> int:
    """Blocks of so many values; the last one may be short."""
    return -(-size // BLOCK)
