"""The recurrence itself, one token after the other: the definition of all that is in this folder.

With S_0 the state that came in (zero if none), for every head and every token t:

    S'  = diag(exp(g_t)) S_{t-1}                  decay, where there is one
    v'  = beta_t (v_t - S'^T k_t)                 delta rules; otherwise v' = v_t
    S_t = S' + k_t v'^T                           S: [D, E]
    o_t = scale S_t^T q_t

    rule          decay g   beta
    linear        -         -          causal linear attention, without its normaliser
    gated         yes       -          retention, Lightning, GLA, Mamba-2
    delta         -         yes        DeltaNet
    gated_delta   yes       yes        Gated DeltaNet; decay per channel: Kimi Delta Attention

Sources: the specification of ONNX's LinearAttention-27; Yang et al. 2024, arXiv 2406.06484 (delta
rule) and 2412.06464 (gated delta rule); Kimi Team 2025, arXiv 2510.26692.
"""

from typing import Optional

import torch
from torch import Tensor

from linattn.recurrent.heads import grouped, per_channel


def recurrent_oracle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    state: Optional[Tensor] = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Run the definition; shapes as in :func:`linattn.recurrent.chunked`. Run it in float64."""
    query, key, value, decay, beta = grouped(query, key, value, decay, beta)
    batch, length, heads, width = query.shape
    if state is None:
        state = query.new_zeros(batch, heads, width, value.size(-1))
    outputs = []
    for t in range(length):
        if decay is not None:
            state = torch.exp(per_channel(decay)[:, t]).unsqueeze(-1) * state
        written = value[:, t]
        if beta is not None:
            recalled = torch.einsum("bhde,bhd->bhe", state, key[:, t])
            written = beta[:, t].unsqueeze(-1) * (written - recalled)
        state = state + torch.einsum("bhd,bhe->bhde", key[:, t], written)
        outputs.append(scale * torch.einsum("bhde,bhd->bhe", state, query[:, t]))
    return torch.stack(outputs, dim=1), state
