"""The modules that faults are planted in, each with its faults."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.faults import (
    Inputs,
    blind,
    blind_elu,
    column,
    kernel,
    make_stale,
    one_nan,
    scale_weight,
    swap_projections,
    taylor,
)
from benchmarks.peers.rules import Array
from linattn.numerics import elu_plus_one as phi
from linattn_export.options.request import BuildRequest
from linattn_export.subjects.making import make_subjects
from linattn_export.subjects.subject import Subject

LENGTHS = (64, 512, 4096)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A right module, its inputs, and the faults planted in it.

    ``forwards`` replace the forward of the method, ``edits`` change the module or its inputs;
    ``prepare`` changes what was drawn from N(0, 1), for eager and for the artifact alike.
    """

    method: str
    model: str = "attention"
    note: str = ""
    prepare: Callable[[Inputs], object] = len
    options: dict[str, Any] = field(default_factory=dict)
    forwards: dict[str, Callable[..., Tensor]] = field(default_factory=dict)
    edits: dict[str, Callable[[nn.Module, Inputs], None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The module and what is special about it."""
        return f"{self.model}/{self.method}" + (f", {self.note}" if self.note else "")

    def subject(self) -> Subject:
        """The module, 4 heads of 64."""
        request = BuildRequest(
            models=(self.model,),
            methods=(self.method,),
            lengths=(),
            dynamic=f"1:{LENGTHS[-1]}",
            d_model=256,
            heads=4,
            mask="padding" in self.note,
            options={self.method: self.options} if self.options else {},
        )
        return make_subjects(request)[0]

    def outputs(self, subject: Subject, inputs: Inputs) -> Iterator[tuple[str, Array]]:
        """The outputs of all faults, by name."""
        for name in (*self.forwards, *self.edits):
            entry: Any = copy.deepcopy(subject.entry())
            changed = dict(inputs)
            if name in self.forwards:
                outer = entry.layer if self.model == "layer" else entry
                outer.attention.forward = self.forwards[name]
            else:
                self.edits[name](entry, changed)
            yield name, entry(*changed.values()).numpy()


SETTINGS = (
    Setting(
        method="softmax",
        forwards={
            "scale missing": lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v,
            "softmax over queries": lambda q, k, v: torch.softmax(q @ k.mT / 8, -2) @ v,
            "last token dropped": lambda q, k, v: (
                torch.softmax(q @ k[..., :-1, :].mT / 8, -1) @ v[..., :-1, :]
            ),
        },
    ),
    Setting(
        method="efficient",
        forwards={"query ignored": blind},
        edits={"output of the call before": make_stale},
    ),
    Setting(method="efficient", model="layer", forwards={"query ignored": blind}),
    Setting(
        method="elu",
        forwards={
            "query ignored": blind_elu,
            "normaliser dropped": lambda q, k, v: phi(q) @ (phi(k).mT @ v),
            "normaliser x 1.0001": lambda q, k, v: kernel(phi(q), phi(k), v, scale=1.0001),
            "products in bfloat16": lambda q, k, v: kernel(
                phi(q).bfloat16().float(), phi(k).bfloat16().float(), v.bfloat16().float()
            ),
            "NaN at one position": one_nan,
        },
    ),
    Setting(
        method="elu",
        note="last quarter is padding",
        prepare=lambda x: x["attention_mask"].chunk(4, dim=1)[3].zero_(),
        forwards={
            "mask on V only": lambda q, k, v, m: kernel(phi(q), phi(k), v * column(m)),
            "mask off by one": lambda q, k, v, m: kernel(
                phi(q), phi(k) * column(m, 1), v * column(m, 1)
            ),
        },
    ),
    Setting(
        method="elu",
        model="layer",
        forwards={"query ignored": blind_elu},
        edits={"one weight x 1.001": scale_weight},
    ),
    Setting(method="elu", note="normalize=False", options={"normalize": False}),
    Setting(
        method="relu",
        note="two queries without a positive feature",
        prepare=lambda x: x["query"][..., :2, :].abs_().neg_(),
        forwards={"eps dropped": lambda q, k, v: kernel(q.relu(), k.relu(), v, eps=0.0)},
    ),
    Setting(
        method="relu",
        note="query x 1e-8",
        prepare=lambda x: x["query"].mul_(1e-8),
        forwards={"eps 1e-15 for 1e-6": lambda q, k, v: kernel(q.relu(), k.relu(), v, eps=1e-15)},
    ),
    Setting(
        method="taylor",
        forwards={
            "length frozen at 24": lambda q, k, v: taylor(q, k, v, 24),
            "length off by one": lambda q, k, v: taylor(q, k, v, k.size(-2) + 1),
        },
    ),
    Setting(method="linformer", edits={"E and F swapped": swap_projections}),
)
