"""Whether a graph of one length holds its tokens one by one, so that it grows with the length."""

from collections import Counter

import torch

from linattn.torch_internals import OpOverload
from linattn_export.capture.program import captured_with
from linattn_export.live_module.reasons import Place, places_of
from linattn_export.options.variants import Variant
from linattn_export.subjects.subject import Subject
from linattn_runtime_checks.contract.codes import Code
from linattn_runtime_checks.contract.manifest import Note

_FEWEST = 8
"""Tokens: a few nodes more or less are no matter."""


def unrolled(
    program: torch.export.ExportedProgram, subject: Subject, variant: Variant
) -> tuple[Note, ...]:
    """A note, if half as many tokens make a smaller graph.

    Only a graph that holds some line at least once for every token is captured again.
    """
    length = variant.sequence.low
    if not subject.is_own or not variant.sequence.fixed or length < _FEWEST:
        return ()
    places = places_of(program)
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    repeated: Counter[Place] = Counter()
    for (place, _), count in Counter(
        (places[node.name], str(node.target))
        for node in nodes
        if node.name in places and isinstance(node.target, OpOverload)
    ).items():
        if count >= length - 1:
            repeated[place] += count
    if not repeated:
        return ()
    try:
        half = captured_with(subject, variant, length // 2)
    except Exception:  # the module takes no other length
        return ()
    fewer = sum(node.op == "call_function" for node in half.graph.nodes)
    if fewer >= len(nodes):
        return ()
    place, count = repeated.most_common(1)[0]
    return (
        Note(
            code=Code.GRAPH_UNROLLED,
            message=(
                f"{subject.name} {variant.name}: {len(nodes)} nodes, of which {count} at {place}; "
                f"with {length // 2} tokens there are {fewer}, so the graph grows with the length: "
                "the loop is written out; use operators over the whole axis (cumsum, a matrix "
                "product), nn.GRU or nn.LSTM, or torch's scan"
            ),
        ),
    )
