"""The seed, step by step as its transcript says it, against ours.

A video transcript, "Linear Complexity in Attention Mechanism: A step-by-step implementation in
PyTorch". Each function below is one of its notebook cells: same steps, same shapes, data from
torch.rand. Float64 instead of float32 is the only difference.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from linattn import METHODS

N, D, R = 1000, 256, 100
DQ = DK = DV = D

# Inputs are positive, up to about 80, and there are sums of 1000 x 256 products of them, but no
# cancellation: about 1e5 roundings of 1e-16 cannot reach 1e-10.
SUMS = 1e-10
# Softmax turns the absolute error of a logit into a relative one of a weight, so the size of the
# logits counts: 8e4 for softmax and 4e7 for linformer, times the 1e-15 that a product of 256 (and
# for E K, 1000) terms costs. The tolerance leaves a factor of 100.
SOFTMAX = 1e-8
LINFORMER = 1e-5


def query_key_value() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    X = rand(N, D)
    WQ, WK, WV = rand(D, DQ), rand(D, DK), rand(D, DV)
    Q, K, V = X.matmul(WQ), X.matmul(WK), X.matmul(WV)
    assert Q.shape == K.shape == V.shape == (N, D)
    return Q, K, V


Q, K, V = query_key_value()


def ours(name: str, *inputs: Tensor, **options: object) -> Tensor:
    record = METHODS[name]
    output: Tensor = record.module(record.configure(options)).double()(*inputs)
    return output


def test_scaled_dot_product_attention() -> None:
    attention_scores = Q.matmul(K.T)
    assert attention_scores.shape == (N, N)
    attention_weights = torch.softmax(attention_scores / math.sqrt(DK), dim=1)
    assert attention_weights.shape == (N, N)
    sum_over_rows = torch.sum(attention_weights, dim=-1)
    assert torch.allclose(sum_over_rows, torch.ones(N, dtype=torch.float64))
    attention_output = attention_weights.matmul(V)
    assert attention_output.shape == (N, D)

    assert_close(ours("softmax", Q, K, V), attention_output, rtol=SOFTMAX, atol=0)


def test_scaled_dot_product_attention_with_a_batch_axis() -> None:
    batch_Q, batch_K, batch_V = Q.unsqueeze(0), K.unsqueeze(0), V.unsqueeze(0)
    assert batch_Q.shape == (1, N, D)
    attention_scores = torch.bmm(batch_Q, batch_K.transpose(1, 2))
    assert attention_scores.shape == (1, N, N)
    attention_weights = torch.softmax(attention_scores / math.sqrt(DK), dim=-1)
    sum_over_rows = torch.sum(attention_weights, dim=-1)
    assert torch.allclose(sum_over_rows, torch.ones(1, N, dtype=torch.float64))
    attention_output = torch.bmm(attention_weights, batch_V)
    assert attention_output.shape == (1, N, D)

    assert_close(ours("softmax", batch_Q, batch_K, batch_V), attention_output, rtol=SOFTMAX, atol=0)


def test_efficient_attention() -> None:
    sigma_Q = torch.softmax(Q, dim=1)
    sigma_K = torch.softmax(K, dim=0)
    assert sigma_Q.shape == sigma_K.shape == (N, D)
    step2_result = sigma_K.T.matmul(V)
    assert step2_result.shape == (D, D)
    attention_output = sigma_Q.matmul(step2_result)
    assert attention_output.shape == (N, D)

    assert_close(ours("efficient", Q, K, V), attention_output, rtol=SUMS, atol=0)


def test_elu_attention_without_normaliser() -> None:
    elu = nn.ELU()

    def phi(x: Tensor) -> Tensor:
        features: Tensor = elu(x) + 1
        return features

    phi_Q, phi_K = phi(Q), phi(K)
    assert phi_Q.shape == phi_K.shape == (N, D)
    step2_result = phi_K.T.matmul(V)
    assert step2_result.shape == (D, D)
    attention_output = phi_Q.matmul(step2_result)
    assert attention_output.shape == (N, D)

    assert_close(ours("elu", Q, K, V, normalize=False), attention_output, rtol=SUMS, atol=0)


def test_taylor_attention() -> None:
    one_N = torch.ones(N, dtype=torch.float64)
    assert one_N.shape == (N,)
    norm_of_Q = torch.norm(Q, p=2, dim=1, keepdim=True)
    norm_of_K = torch.norm(K, p=2, dim=1, keepdim=True)
    assert norm_of_Q.shape == norm_of_K.shape == (N, 1)
    Q_prime, K_prime = Q / norm_of_Q, K / norm_of_K
    term1 = V.T.matmul(one_N)
    assert term1.shape == (D,)
    term2 = Q_prime.matmul(K_prime.T.matmul(V))
    assert term2.shape == (N, D)
    term3 = Q_prime.matmul(K_prime.T.matmul(one_N))
    assert term3.shape == (N,)
    # The transcript first divides by N + term3, of shape [N], and mends the error that N = 1000
    # against D = 256 gives.
    with pytest.raises(RuntimeError, match="must match the size"):
        (term1 + term2) / (N + term3)
    attention_output = (term1 + term2) / (N + term3.unsqueeze(-1))
    assert attention_output.shape == (N, D)

    assert_close(ours("taylor", Q, K, V), attention_output, rtol=SUMS, atol=0)


def test_linformer_attention() -> None:
    generator = torch.Generator().manual_seed(1)
    E = torch.rand(R, N, dtype=torch.float64, generator=generator)
    F = torch.rand(R, N, dtype=torch.float64, generator=generator)
    EK, FV = E.matmul(K), F.matmul(V)
    assert EK.shape == FV.shape == (R, D)
    P = torch.softmax(Q.matmul(EK.T) / math.sqrt(DK), dim=1)
    assert P.shape == (N, R)
    attention_output = P.matmul(FV)
    assert attention_output.shape == (N, D)

    record = METHODS["linformer"]
    module = record.module(record.configure({"rank": R, "max_length": N})).double()
    module.load_state_dict({"key_projection": E, "value_projection": F})
    assert_close(module(Q, K, V).detach(), attention_output, rtol=LINFORMER, atol=0)


def test_seed_drops_what_normalises_elu_attention() -> None:
    # Why ours divides by default: the seed's result has left the range of float16 (6.6e4), and of
    # anything that a layer could follow; a weighted mean of V cannot.
    assert ours("elu", Q, K, V, normalize=False).max() > 1e10
    assert ours("elu", Q, K, V).max() < V.max()
