"""A function of yours that returns samples: `module:callable`."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from edge_client.data.samples import RawSamples, Sign, checked
from moonfed.errors import InvalidInput
from moonfed.manifest import InputSpec

Function = Callable[[InputSpec, tuple[str, ...]], object]


class FunctionSource:
    """Calls `function(input_spec, class_names)`; it returns `(inputs, labels)`, arrays as an .npz file would hold.

    It is called anew for every round, in the training process, so it may return data that have changed; what is costly
    to read it should keep in a variable of its module. Modules in the working directory are found.
    """

    decodes = False

    def __init__(self, text: str) -> None:
        self.text = text

    def check(self) -> None:
        """Raises InvalidInput unless the function can be imported."""
        self._function()

    def fingerprint(self) -> None:
        """Nobody can know what a function will return."""
        return

    def read(self, spec: InputSpec, classes: tuple[str, ...], sign: Sign) -> RawSamples:
        """What the function returns, checked."""
        sign()
        result = self._function()(spec, classes)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidInput(f"{self.text} returned {type(result).__name__}; it must return (inputs, labels)")
        return checked(result[0], result[1], spec, classes, self.text)

    def _function(self) -> Function:
        module, _, name = self.text.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidInput(f"data is {self.text!r}, which cannot be imported: {error}") from error
        if not callable(function):
            raise InvalidInput(f"data is {self.text!r}, a {type(function).__name__}; it must be a function")
        return function  # type: ignore[no-any-return]
