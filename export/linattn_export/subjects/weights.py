"""Reads a safetensors file into a module, and says exactly what does not fit."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from linattn_runtime_checks.contract.errors import UsageError

_SHOWN = 5
_HOW = "write it with safetensors.torch.save_file(module.state_dict(), path)"
_PREFIXES = ("module.", "_orig_mod.", "model.")


def load_weights(module: nn.Module, path: Path, subject: str) -> None:
    """Load all parameters and buffers of ``module`` from ``path``, strictly.

    Names that share one tensor may be there once, as safetensors' ``save_model`` leaves them.
    Floating-point numbers are converted to the dtype of the module's own, bfloat16 to float32 say.

    Args:
        module: what to load into.
        path: a safetensors file.
        subject: what the module is, for messages.

    Raises:
        UsageError: the file is missing, is not safetensors, lacks keys, has more, or has tensors
            of other shapes or kinds; the module is then unchanged.
    """
    own = {n: x for n, x in module.state_dict(keep_vars=True).items() if isinstance(x, Tensor)}
    found = _read(path, own)
    tied = _tied(own)
    given = found.keys() | {name for group in tied if group & found.keys() for name in group}
    problems = []
    if missing := sorted(name for name in own.keys() - given if not _counts_only(name)):
        problems.append(f"it lacks {_listed(missing)}")
    if extra := sorted(found.keys() - own.keys()):
        problems.append(f"it has also {_listed(extra)}{_hint(extra, own, module)}")
    for name in sorted(own.keys() & found.keys()):
        problems += _problem(name, found[name], own[name])
    problems += _contradictions(tied, found)
    if problems:
        raise UsageError(f"{path} does not fit {subject}: {'; '.join(problems[:_SHOWN])}")
    with torch.no_grad():
        module.load_state_dict(found, strict=False)


def _read(path: Path, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the file, also under those names that its metadata gives them."""
    if path.is_dir() or path.name.endswith(".index.json"):
        raise UsageError(
            f"{path} is not one file of weights; `weights` takes one .safetensors file: load the "
            f"parts into the module, and {_HOW}"
        )
    if not path.is_file():
        raise UsageError(f"no such weights file: {path}; `weights` takes a .safetensors file")
    try:
        with safe_open(path, framework="pt") as handle:
            found = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
            aliases = handle.metadata() or {}
    except SafetensorError as error:
        pickled = path.suffix in (".pt", ".pth", ".bin", ".ckpt")
        load = "load it with torch.load into the module, and " if pickled else ""
        raise UsageError(f"{path} is not a safetensors file ({error}); {load}{_HOW}") from error

    return found | {
        name: found[kept]
        for name, kept in aliases.items()
        if kept in found and name in own and name not in found
    }


def _tied(own: Mapping[str, Tensor]) -> list[set[str]]:
    """Names of the very same numbers in the module, together."""
    groups: dict[object, set[str]] = {}
    for name, x in own.items():
        known = x.numel() > 0 and x.data_ptr() != 0
        place = (x.data_ptr(), x.shape, x.stride(), x.dtype) if known else id(x)
        groups.setdefault(place, set()).add(name)
    return [group for group in groups.values() if len(group) > 1]


def _counts_only(name: str) -> bool:
    """Whether it is a counter of training that older files lack, and that eval mode ignores."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def _problem(name: str, found: Tensor, own: Tensor) -> list[str]:
    if own.shape != found.shape:
        return [f"{name} has shape {list(found.shape)}, expected {list(own.shape)}"]
    kinds = [_kind(found.dtype), _kind(own.dtype)]
    if kinds[0] != kinds[1]:
        dtype, wanted = (str(x.dtype).removeprefix("torch.") for x in (found, own))
        return [f"{name} has dtype {dtype}, expected {wanted}"]
    if kinds[0] == "whole" and not torch.equal(found.to(own.dtype).to(found.dtype), found):
        wanted = str(own.dtype).removeprefix("torch.")
        return [f"{name} holds numbers that are too large for {wanted}"]
    return []


def _kind(dtype: torch.dtype) -> str:
    """Within a kind numbers are converted."""
    if dtype.is_floating_point:
        return "floating point"
    return "complex" if dtype.is_complex else "bool" if dtype == torch.bool else "whole"


def _contradictions(tied: list[set[str]], found: Mapping[str, Tensor]) -> list[str]:
    """Names of one tensor that the file gives different numbers."""
    problems = []
    for group in tied:
        first, *others = sorted(group & found.keys()) or [""]
        problems += [
            f"{first} and {name} are one tensor in the module, and differ in the file"
            for name in others
            if not torch.equal(found[first], found[name])
        ]
    return problems


def _hint(extra: list[str], own: Mapping[str, Tensor], module: nn.Module) -> str:
    """What would make the extra names fit."""
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) and name.removeprefix(prefix) in own for name in extra):
            return f"; strip {prefix!r} from its names"
        if all(prefix + name in own for name in extra):
            return f"; put {prefix!r} before its names"
    unkept = {name for name, _ in module.named_buffers()} - own.keys()
    if set(extra) <= unkept:
        return ", buffers that the module does not keep (persistent=False): leave them out"
    return ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
