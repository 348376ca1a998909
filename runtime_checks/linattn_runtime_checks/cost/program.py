"""Certify a torch.export program by the symbolic shapes that it carries; torch is not imported."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from linattn_runtime_checks.contract.manifest import Artifact
from linattn_runtime_checks.cost import axes
from linattn_runtime_checks.cost.axes import Polynomial
from linattn_runtime_checks.cost.certificate import (
    CostCertificate,
    Survey,
    judge,
    kernel_may_grow,
    unknown,
)

_HIDES_WORK = (
    "scaled_dot_product",
    "_attention",
    "multi_head",
    "transformer",
    "trilinear",
    "multi_dot",
    "chain_matmul",
    "fft",
    "stft",
)


def certify_program(program: Any, artifact: Artifact) -> CostCertificate:
    """Judge the tensors of every node by the shapes that torch.export has worked out for them.

    They are the tensors that PyTorch makes when it runs the program as it is; a compiler may
    choose others.

    Args:
        program: a ``torch.export.ExportedProgram``.
        artifact: inputs, in the order of the program's, and declared ranges.

    Returns:
        The certificate; ``unknown`` with the reason where a shape or a node cannot be read.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = [nodes[name] for name in program.graph_signature.user_inputs]
    symbols = _symbols(inputs, artifact)
    low, high = artifact.axis("sequence").declared
    if low < high and "sequence" not in symbols:
        return unknown(
            f"the lengths {low} to {high} are declared, but the program has none that varies; "
            "build the folder again"
        )
    survey = Survey()
    for node in nodes.values():
        if node.op in ("placeholder", "get_attr") and node not in inputs:
            for _, weight in _tensors(node):
                survey.widths |= {size for size in weight.shape if isinstance(size, int)}
        elif node in inputs or (node.op == "call_function" and not _is_getitem(node)):
            op = "input" if node in inputs else str(node.target)
            for name, tensor in _tensors(node):
                shape = [_polynomial(size, symbols) for size in tensor.shape]
                survey.add(name, node.name, op, shape, list(tensor.shape))
            if op == "scan":
                body = getattr(program.graph_module, node.args[0].target)
                survey.doubts += _scan_doubts(node, body, symbols)
            else:
                survey.doubts += _doubts(node, op, artifact)
    return judge(survey, artifact)


def _symbols(inputs: list[Any], artifact: Artifact) -> dict[str, Any]:
    """``batch`` and ``sequence`` to the sympy symbols that the inputs have in their places."""
    found: dict[str, Any] = {}
    for node, spec in zip(inputs, artifact.inputs, strict=True):
        for size, axis in zip(node.meta["val"].shape, spec.shape, strict=True):
            free = [] if isinstance(size, int) else list(size.node.expr.free_symbols)
            if isinstance(axis, str) and len(free) == 1:
                found.setdefault(axis, free[0])
    return found


def _tensors(node: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that a node makes, by name; none for a node that makes a number."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        for i, part in enumerate(value):
            if hasattr(part, "shape"):
                yield f"{node.name}[{i}]", part
    elif hasattr(value, "shape"):
        yield node.name, value


def _is_getitem(node: Any) -> bool:
    """Its tensor is one of those of the node before."""
    return getattr(node.target, "__name__", "") == "getitem"


def _polynomial(size: Any, symbols: dict[str, Any]) -> Polynomial | None:
    if isinstance(size, int):
        return axes.constant(size)
    expression = size.node.expr
    if expression.is_Integer:
        return axes.constant(int(expression))
    # Blocks of tokens: a number of blocks grows as the tokens do, for it differs from their
    # quotient by less than one.
    expression = expression.replace(_is_quotient, lambda floor: floor.args[0] / floor.args[1])
    expression = expression.replace(_is_at_least, lambda most: sum(most.args))
    names = [name for name in ("batch", "sequence") if name in symbols]
    # None where a symbol is inside a function, such as a division that rounds.
    polynomial = expression.as_poly(*(symbols[name] for name in names)) if names else None
    if polynomial is None or not all(c.is_Rational for c in polynomial.coeffs()):
        return None
    found: Polynomial = {}
    for powers, coefficient in polynomial.terms():
        by_name = dict(zip(names, powers, strict=True))
        at = by_name.get("batch", 0), by_name.get("sequence", 0)
        found[at] = Fraction(int(coefficient.p), int(coefficient.q))
    return found


def _is_quotient(expression: Any) -> bool:
    return type(expression).__name__ == "FloorDiv" and bool(expression.args[1].is_Integer)


def _is_at_least(expression: Any) -> bool:
    """The greater of a size and a number."""
    return type(expression).__name__ == "Max" and any(a.is_Integer for a in expression.args)


def _scan_doubts(node: Any, body: Any, symbols: dict[str, Any]) -> Iterator[str]:
    """Why the turns of a scan may cost more the longer the sequence is."""
    for inner in body.graph.nodes:
        if inner.op == "output":
            continue
        if inner.op == "call_function" and not str(inner.target).startswith("aten."):
            yield f"node {node.name} (scan) has {inner.target} in its body"
        shapes = [tensor.shape for _, tensor in _tensors(inner)]
        if not shapes:
            yield f"node {node.name} (scan) has {inner.name} in its body, whose size is not known"
        for size in (size for shape in shapes for size in shape):
            polynomial = _polynomial(size, symbols)
            if polynomial is None or axes.degree(polynomial):
                yield f"node {node.name} (scan) has {inner.name} in its body, which may grow"


def _doubts(node: Any, op: str, artifact: Artifact) -> Iterator[str]:
    """Why the tensors of this node may not tell its whole cost."""
    if op == "input" or not any(True for _ in _tensors(node)):
        return
    name = f"node {node.name} ({op})"
    operation = op.removeprefix("aten.")
    if operation == op:
        yield f"{name} is no operation of aten and may do work that its tensors do not show"
    elif any(word in operation for word in _HIDES_WORK) or (
        operation.startswith("einsum") and len(node.args[1]) > 2
    ):
        yield f"{name} does work that its tensors do not show"
    elif operation.lstrip("_").startswith("conv"):
        kernel = node.args[1]
        constant = kernel.op in ("placeholder", "get_attr")
        if kernel_may_grow(kernel.meta["val"].shape if constant else None, artifact):
            yield f"{name} has a kernel that may grow with the length"
