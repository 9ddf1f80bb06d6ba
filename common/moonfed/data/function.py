"""A user-defined function that returns samples: `module:callable`."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.bundle.manifest import InputSpec
from moonfed.data.data_set import DataSet, check_data_set, label_array
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse
from moonfed.errors import InvalidInput
from moonfed.user_code import call_user_function, load_callable


class FunctionSource:
    """Calls `function(input_spec, class_names)`; it returns `(inputs, labels)`, arrays as an .npz file would hold.

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
        classes: Sequence[str],
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Call the function and check its result."""
        heartbeat()
        function = load_callable(self._option, self.text)
        result = call_user_function(self._option, self.text, function, spec, tuple(classes))
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidInput(
                f"{self.text} returned {type(result).__name__}; it must return (inputs, labels)",
                field=self.text,
                value=type(result).__name__,
            )
        targets = None if labels == IGNORED else label_array(result[1], self.text)
        return check_data_set(result[0], targets, spec, classes, self.text)
