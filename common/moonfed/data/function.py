"""A user-defined function that returns samples: `module:callable`."""

from __future__ import annotations

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse
from moonfed.errors import InvalidInput
from moonfed.user_code import call_user_function, load_callable


class FunctionSource:
    """Calls `function(input_spec, names)`; it returns `(inputs, targets)`, arrays as an .npz file would hold.

    A device calls it once per round, in the process that reads the data, so its data may change; cache expensive reads
    in a variable of its module. The working directory is on the module search path.
    """

    decodes = False

    def __init__(self, text: str, option: str = "data") -> None:
        """`option`: its name, for messages."""
        self.text, self._option = text, option

    def check(self) -> None:
        """Raise InvalidInput unless the function can be imported."""
        load_callable(self._option, self.text)

    def fingerprint(self) -> None:
        """Return None: a function's result cannot be known beforehand."""
        return

    def read(
        self,
        spec: InputSpec,
        target: TargetSpec,
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Call the function and check its result."""
        heartbeat()
        function = load_callable(self._option, self.text)
        result = call_user_function(self._option, self.text, function, spec, target.names)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidInput(
                f"{self.text} returned {type(result).__name__}; it must return (inputs, targets)",
                field=self.text,
                value=type(result).__name__,
            )
        return check_data_set(result[0], None if labels == IGNORED else result[1], spec, target, self.text)
