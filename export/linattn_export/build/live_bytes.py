"""How many bytes of tensors are alive at once while something runs."""

from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from linattn.torch_internals import TorchDispatchMode, tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, ``peak`` follows the storages that operators make and that nobody dropped yet."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {_storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        found = func(*args, **(kwargs or {}))
        for ref in [ref for ref in self._alive if ref.expired()]:  # type: ignore[no-untyped-call]
            del self._alive[ref]
        for x in tree_leaves(found):
            if isinstance(x, Tensor) and _storage(x) not in given:
                self._alive[_storage(x)] = x.untyped_storage().nbytes()
        self.peak = max(self.peak, sum(self._alive.values()))
        return found


def _storage(x: Tensor) -> StorageWeakRef:
    return StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]
