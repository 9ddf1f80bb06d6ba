"""The interface between a decoder and the programs that feed it arbitrary bytes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import MoonfedError

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A function that must accept any bytes or raise one of `rejections`."""

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]  # valid input, of which mutants are made
    rejections: tuple[type[Exception], ...] = (MoonfedError,)
    largest: int = 4096  # bytes of a mutant

    def check(self, content: bytes) -> BaseException | None:
        """Decode the bytes; return an exception that is not a rejection."""
        try:
            self.read(content)
        except self.rejections:
            return None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            return error
        return None

    def stored(self) -> dict[str, bytes]:
        """Return the findings of earlier campaigns, by file name."""
        return {path.name: path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))}


def location(error: BaseException) -> str:
    """Name the exception and the innermost line that raised it, which identify a finding."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    ours = [frame for frame in frames if "/moonfed/" in frame.filename.replace("\\", "/")]
    own = f" from {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__} at {place}{own}"
