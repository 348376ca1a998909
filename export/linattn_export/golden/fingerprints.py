"""Fingerprints of everything that a captured program computes, to hold other runtimes to."""

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from linattn_runtime_checks.contract.fingerprint import Fingerprint

_LINEAR = torch.ops.aten.linear.default


def fingerprints(program: ExportedProgram, inputs: dict[str, Tensor]) -> list[Fingerprint]:
    """One fingerprint for each floating-point tensor that ``program`` computes, in its order.

    It runs in its own dtype: what that rounds is far below what a fingerprint can tell apart.
    Tensors of less than two elements are left out, for they look alike. The last fingerprint is
    that of the program's output, of any size.

    Args:
        program: with a single output tensor.
        inputs: by name, in the order and dtype that the program takes; of sizes it allows. Sizes
            above 1 on every axis, and different ones, tell most tensors apart.
    """
    recorder = _Recorder(program.module())
    with torch.no_grad():
        result: Any = recorder.run(*inputs.values())
    output = result[0] if isinstance(result, (tuple, list)) else result
    found = recorder.found
    last = Fingerprint.of(output.double().numpy(), "output", "output")
    return found if found and found[-1].matches(last, 0.0) else [*found, last]


class _Recorder(fx.Interpreter):
    """Runs a graph node by node and keeps a fingerprint of each tensor."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: list[Fingerprint] = []

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function":
            if n.target is _LINEAR and len(n.args) == 3:
                # Elsewhere the bias is an operator of its own.
                product = torch.nn.functional.linear(*self.fetch_args_kwargs_from_env(n)[0][:2])
                self._keep(product, f"{n.name} without bias", str(n.target))
            self._keep(value, n.name, str(n.target))
        return value

    def _keep(self, value: Any, node: str, op: str) -> None:
        # Tuples are of several results; each is taken out by a node of its own.
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1:
            self.found.append(Fingerprint.of(value.detach().double().numpy(), node, op))
