"""A user-defined function that returns samples: `module:callable`."""

from __future__ import annotations

from moonfed.edge_client.data.samples import HeartbeatCallback
from moonfed.errors import InvalidInput
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples, check_samples
from moonfed.user_code import call_user_function, load_callable


class FunctionSource:
    """Calls `function(input_spec, class_names)`; it returns `(inputs, labels)`, arrays as an .npz file would hold.

    It is called once per round, in the training process, so its data may change; cache expensive reads in a variable of
    its module. The working directory is on the module search path.
    """

    decodes = False

    def __init__(self, text: str) -> None:
        self.text = text

    def check(self) -> None:
        """Raise InvalidInput unless the function can be imported."""
        load_callable("data", self.text)

    def fingerprint(self) -> None:
        """Return None: a function's result cannot be known beforehand."""
        return

    def read(self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback) -> RawSamples:
        """Call the function and check its result."""
        heartbeat()
        result = call_user_function("data", self.text, load_callable("data", self.text), spec, classes)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidInput(f"{self.text} returned {type(result).__name__}; it must return (inputs, labels)")
        return check_samples(result[0], result[1], spec, classes, self.text)
