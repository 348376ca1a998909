"""``examples/serve_onnx.py`` on tokens: a trained model tells clients the languages of texts."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from golden_runs import LANGID_PACK
from linattn_runtime_checks.contract.golden_pack import open_reference
from service_calls import CLIENTS, ask, load, serving


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(monkeypatch)


@pytest.mark.slow
def test_clients_are_told_the_languages_of_their_texts(
    example: ModuleType, langid_folder: Path
) -> None:
    with open_reference(langid_folder / LANGID_PACK) as pack:
        inputs, labels = pack.task_data()
    masks = inputs["attention_mask"]
    texts = [tokens[mask].tolist() for tokens, mask in zip(inputs["tokens"], masks, strict=True)]
    labels = labels[::5]  # some of every language
    bodies: list[Any] = [{"input": text} for text in texts[::5]]
    wrong = [{"input": [*b"Sil", 300]}, {"input": [*b"Sil", -5]}]
    with serving(example, langid_folder) as service, ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(lambda body: ask(service, body), [*bodies, *wrong]))
    assert [status for status, _ in answers] == [*[200] * len(bodies), 400, 400]
    assert "tokens holds 83 to 300, verified on 0 to 255" in answers[-2][1]["error"]
    assert "tokens holds -5 to 108, verified on 0 to 255" in answers[-1][1]["error"]
    found = [np.argmax(document["outputs"]["output"]) for _, document in answers[:-2]]
    assert len(found) > 200
    assert np.mean(found == labels) > 0.9


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"input": [1.5]}', "input holds float64, expected int64"),
        (b'{"input": [99999999999999999999]}', "input holds object, expected int64"),
        (b'{"input": [[1]]}', "input has shape [1, 1], expected [sequence]"),
    ],
)
def test_tokens_are_whole_numbers(example: ModuleType, body: bytes, message: str) -> None:
    tokens = example.read_tokens(b'{"input": [0, 255]}', np.dtype(np.int64), ())
    assert (tokens.dtype, tokens.tolist()) == (np.int64, [0, 255])
    with pytest.raises(example.Refused, match=re.escape(message)):
        example.read_tokens(body, np.dtype(np.int64), ())
