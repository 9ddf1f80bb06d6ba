"""A user-defined function that returns samples: `module:callable`."""

from __future__ import annotations

from dataclasses import replace

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Inputs, check_data_set
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse
from moonfed.data.storage import Storage, place_of
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
        storage: Storage | None = None,
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
        targets = None if labels == IGNORED else result[1]
        samples = check_data_set(result[0], targets, spec, target, self.text, storage=storage)
        return _stored(samples, storage or Storage())


def _stored(samples: DataSet, storage: Storage) -> DataSet:
    """Move what is too large for memory, in which it may be needed twice, to files."""

    def stored(name: str, array: Inputs) -> Inputs:
        return array if place_of(array) or storage.reserve(array.nbytes) else storage.keep(name, array)

    targets = None if samples.targets is None else stored("targets", samples.targets)
    return replace(samples, inputs=stored("inputs", samples.inputs), targets=targets)
