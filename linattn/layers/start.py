"""Where fresh weights start: the distributions of the published models."""

import math

import torch
from torch import Tensor, nn


def convolution_weight(channels: int, taps: int) -> nn.Parameter:
    """``[C, 1, K]``, uniform as in ``torch.nn.Conv1d`` with one channel for each."""
    bound = 1 / math.sqrt(taps)
    return nn.Parameter(torch.empty(channels, 1, taps).uniform_(-bound, bound))


def decay_rates(heads: int) -> Tensor:
    """Log A, A uniform in 1 to 16: Dao and Gu 2024, arXiv 2405.21060."""
    return torch.empty(heads).uniform_(1, 16).log()


def step_biases(size: int) -> Tensor:
    """Biases whose softplus is log-uniform in 0.001 to 0.1 (same source)."""
    steps = torch.exp(torch.empty(size).uniform_(math.log(1e-3), math.log(1e-1)))
    return steps + torch.log(-torch.expm1(-steps))
