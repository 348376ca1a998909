"""Watches every operator of a run: which draw random numbers, which write into something."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from linattn.torch_internals import TorchDispatchMode, schema_of, tree_leaves
from linattn_export.live_module.kept import same
from linattn_export.live_module.reasons import Place, caller
from linattn_export.live_module.switches import under


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first line of own code that draws random numbers, and those that write.

    Args:
        watched: tensors by name; what is written through a view of one counts too.
    """

    def __init__(self, watched: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {x.untyped_storage().data_ptr(): name for name, x in watched.items()}
        self.random: Place | str | None = None
        """A line, or the operator where no line of own code is running."""
        self.written: dict[str, Place | None] = {}
        """Names of tensors that were written, and the first line that did it."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.random is None and torch.Tag.nondeterministic_seeded in func.tags:
            self.random = caller() or str(func)
        for tensor in _written(func, args, kwargs):
            name = self._names.get(tensor.untyped_storage().data_ptr())
            if name is not None and self.written.get(name) is None:
                self.written[name] = caller()
        return func(*args, **kwargs)


def writes_of(
    call: Callable[[dict[str, Tensor]], object],
    inputs: Mapping[str, Tensor],
    others: Mapping[str, Tensor] | None = None,
) -> dict[str, Place | None]:
    """What ``call`` writes into, and the first line that does it, if it is own code.

    Args:
        call: is given copies of ``inputs``.
        inputs: by name.
        others: further tensors by name, such as buffers, that it may write into.
    """
    given = {name: x.clone() for name, x in inputs.items()}
    watch = Watch({**given, **(others or {})})
    with torch.no_grad():
        if under(watch, lambda: (call(given),)) is None:  # seen by the numbers alone
            given = {name: x.clone() for name, x in inputs.items()}
            call(given)
    changed = [name for name, x in inputs.items() if not same(given[name], x)]
    found: dict[str, Place | None] = watch.written
    return found | {name: found.get(name) for name in changed}


def _written(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operator's schema says it writes into."""
    found = []
    for index, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return found
