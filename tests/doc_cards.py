"""The card of a method, and the page that sets all side by side: from the records."""

import dataclasses
import inspect
import math
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

from doc_markdown import NOTE, bullets, lower, sentence, table, words
from linattn import NAMES, LayerMethod, Method, attention_layer, record_of

WIDTH, HEADS = 256, 4
"""Of the layer whose sizes the cards state."""


def card(record: Method | LayerMethod) -> str:
    """One method: formula, cost, when to choose it, options, limits."""
    definition, below, notes = _head(record)
    options = [
        (f"`{name}`", _kind(hint), f"`{default}`") for name, hint, default in _options(record)
    ]
    parts = [
        f"# {record.name}: {words(record.title)}",
        NOTE,
        f"**When to choose it:** {lower(words(record.when))}",
        "## Definition",
        f"```text\n{definition}\n```",
        sentence(below),
        *(f"**{label}.** {sentence(text)}" for label, text in notes if label != "Cost"),
        "## Cost",
        *(words(text) for label, text in notes if label == "Cost"),
        table((f"a layer of width {WIDTH} with {HEADS} heads", "size"), _sizes(record)),
        "## What it can do",
        table(("property", "value"), _abilities(record)),
        "## Options",
        words((inspect.getdoc(record.config) or "").removeprefix("Options.")),
        *([table(("option", "type", "default"), options)] if options else []),
        "## Limits",
        bullets(_limits(record)),
        "## Use",
        _use(record),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(record: Method | LayerMethod) -> tuple[str, str, list[tuple[str, str]]]:
    """Formulas, words below them, and paragraphs by label: the docstring of the method's file."""
    text = inspect.getdoc(sys.modules[record.config.__module__]) or ""
    formulas: list[str] = []
    below: list[str] = []
    notes: list[tuple[str, str]] = []
    for line in text.split("\n")[1:]:
        label = re.match(r"([A-Z][a-z]+): ", line)
        if line.startswith("    "):
            formulas.append(line[4:])
        elif label:
            notes.append((label[1], line[label.end() :]))
        elif line and notes:
            notes[-1] = (notes[-1][0], f"{notes[-1][1]} {line}")
        elif line:
            below.append(line)
    return "\n".join(formulas), "\n".join(below), notes


def _options(record: Method | LayerMethod) -> Iterator[tuple[str, object, object]]:
    hints = typing.get_type_hints(record.config)
    for field in dataclasses.fields(record.config):
        yield field.name, hints[field.name], field.default


def _kind(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) else str(hint).replace(" | ", " or ")


def _sizes(record: Method | LayerMethod) -> list[tuple[str, str]]:
    layer: Any = attention_layer(WIDTH, HEADS, method=record.name)
    rows = [("parameters", f"{sum(p.numel() for p in layer.parameters()):,}")]
    if record.capabilities.recurrent:
        for spec in layer.state_specs():
            shape = " x ".join(map(str, spec.shape))
            rows.append(
                (f"`{spec.name}`: {spec.layout}", f"{shape} = {math.prod(spec.shape):,} numbers")
            )
    return rows


def _abilities(record: Method | LayerMethod) -> list[tuple[str, str]]:
    able = record.capabilities
    entries = "`forward`, `prefill`, `step`" if able.recurrent else "`forward`"
    return [
        ("time and memory in the number of tokens", able.cost),
        ("causal: no token sees a later one", _yes(able.causal)),
        ("goes on from a state", _yes(able.recurrent)),
        ("graphs", entries),
        ("cross-attention: queries of another length", _yes(able.cross_attention)),
        ("reordered tokens give the same rows, reordered", _yes(able.permutation_equivariant)),
        ("length", "any" if able.any_length else "up to `max_length`"),
        ("a layer with gates of its own", _yes(isinstance(record, LayerMethod))),
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _limits(record: Method | LayerMethod) -> list[str]:
    able = record.capabilities
    found = [f"{sentence(what)}: {words(why)}." for what, why in record.limits.items()]
    if able.cost == "quadratic":
        found.append("Memory and time grow as the square of the sequence.")
    if not able.any_length:
        found.append("Sequences beyond `max_length` are refused.")
    if able.causal and not able.cross_attention:
        found.append("Self-attention only: there must be a query for every key, in their order.")
    if able.divides_rows:
        found.append(
            "Each row is divided by its own size: a row that cancels to almost nothing is "
            "scaled up, and what rounding did to it with it."
        )
    return found or ["None known."]


def _use(record: Method | LayerMethod) -> str:
    name = record.name
    return f"""\
<!-- run -->
```python
import torch
from linattn import attention_layer

layer = attention_layer({WIDTH}, {HEADS}, method="{name}")
output = layer(torch.randn(2, 100, {WIDTH}))
print(tuple(output.shape))
```

<!-- prints -->
```text
(2, 100, {WIDTH})
```

<!-- not run: takes minutes; tests/export/test_build.py builds each method -->
```sh
linattn-export build -m {name} -o {name}
```"""


def overview() -> str:
    """All methods side by side."""
    rows = [
        (
            f"[{record.name}]({record.name}.md)",
            words(record.title),
            record.capabilities.cost,
            _yes(record.capabilities.causal),
            _yes(record.capabilities.recurrent),
        )
        for record in map(record_of, NAMES)
    ]
    headings = ("method", "name", "cost", "causal", "state")
    when = [f"**[{name}]({name}.md)**: {lower(words(record_of(name).when))}" for name in NAMES]
    return f"""\
# Methods

{NOTE}

A method is an attention algorithm. Choose by three questions:

1. **Are all tokens there at once**, as in images, or in text that is only read? Take one that is
   not causal. It cannot be run token by token.
2. **Does the model generate**, or must it answer while tokens come in? Take a causal one: it has a
   state of fixed size, and goes on from it by one token in constant time and memory.
3. **Are there trained weights?** Take the method that they were trained with. The weights of one
   method mean nothing to another, softmax among them: see [Adopt](../adopt.md).

{table(headings, rows)}

## When to choose which

{bullets(when)}

What each costs in ONNX Runtime was measured: against
[its matrix products alone](../../benchmarks/results/speed_floor.md), against
[softmax](../../benchmarks/results/speed_softmax.md),
[one token of a decoder](../../benchmarks/results/speed_decoding.md), and
[the recurrence in each ONNX form](../../benchmarks/results/speed_recurrence.md).
"""
