"""``examples/serve_onnx.py``: different lengths in one batch come out as each does alone."""

import http.client
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from folders import edit, entry
from golden_runs import ARTIFACT, EXAMPLES, LONGEST, MOST, PACK
from linattn_runtime_checks.contract.golden_pack import open_reference
from linattn_runtime_checks.contract.verdict import Comparison, Error, compare
from service_calls import CLIENTS, Answer, ask, load, serving

LENGTHS = (1, 2, 3, 7, 17, 24, 31, 33, 37, 63, 64)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(monkeypatch)


Served = tuple[ModuleType, Any]


@pytest.fixture
def served(example: ModuleType, masked_folder: Path) -> Iterator[Served]:
    with serving(example, masked_folder) as service:
        yield example, service


class Sequence:
    """One sequence of the golden pack, its outputs in float64 and what rounding costs on it."""

    def __init__(self, tokens: Any, expected: Any, allowed: Error) -> None:
        self.body = {"input": tokens.tolist()}
        self.expected = expected
        self.allowed = allowed

    def judge(self, document: dict[str, Any]) -> Comparison:
        got = np.array(document["outputs"]["output"], dtype=np.float32)
        return compare(got, self.expected, "float32", self.allowed)


@pytest.fixture
def sequences(masked_folder: Path) -> list[Sequence]:
    """Every stored sequence of N(0, 1), and those that the pack itself pads on the right."""
    found = []
    with open_reference(masked_folder / PACK) as pack:
        seen = set()
        for case in pack.index.cases:
            if case.family not in ("normal", "right-padding") or case.stored in seen:
                continue
            seen.add(case.stored)
            inputs, (expected,) = pack.inputs(case), pack.outputs(case).values()
            for row, mask in enumerate(inputs["attention_mask"]):
                real = int(mask.sum())
                if case.family == "normal" and not mask.all():
                    continue
                tokens = inputs["hidden_states"][row, :real]
                found.append(Sequence(tokens, expected[row, :real], case.yardstick()))
    assert {len(each.expected) for each in found} >= set(LENGTHS)
    return found


def at_once(service: Any, sequences: list[Sequence]) -> list[Answer]:
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(lambda sequence: ask(service, sequence.body), sequences))


def test_batches_equal_each_alone_and_the_golden_pack(
    served: Served, sequences: list[Sequence]
) -> None:
    _, service = served
    alone = [ask(service, sequence.body) for sequence in sequences]
    assert {document["batch"] for _, document in alone} == {1}
    together = at_once(service, sequences * 2)
    sizes = [document["batch"] for _, document in together]
    assert 1 < max(sizes) <= MOST, sizes
    for sequence, (status, document) in zip(sequences * 3, alone + together, strict=True):
        assert status == 200, document
        verdict = sequence.judge(document)
        assert verdict.passed, (len(sequence.expected), verdict)


def test_a_batch_without_a_mask_would_be_seen(
    served: Served, sequences: list[Sequence], monkeypatch: pytest.MonkeyPatch
) -> None:
    example, service = served
    pad = example.Batcher.pad

    def unmasked(self: Any, tokens: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = pad(self, tokens)
        return made | {"attention_mask": np.ones_like(made["attention_mask"])}

    monkeypatch.setattr(example.Batcher, "pad", unmasked)
    answers = at_once(service, sequences)
    passed = [
        sequence.judge(document).passed
        for sequence, (_, document) in zip(sequences, answers, strict=True)
    ]
    assert not all(passed)


def rows(length: int, width: int = 16) -> dict[str, Any]:
    return {"input": [[0.5] * width] * length}


WRONG: dict[str, tuple[object, int, str]] = {
    "too long": (rows(LONGEST + 1), 413, f"sequence is {LONGEST + 1}, but {ARTIFACT} was verified"),
    "far too long": (rows(20 * LONGEST), 413, f"{LONGEST} tokens, which were verified, take less"),
    "empty": ({"input": []}, 400, "input has shape [0], expected [sequence, 16]"),
    "width": (rows(3, 15), 400, "input has shape [3, 15], expected [sequence, 16]"),
    "ragged": ({"input": [[1.0] * 16, [1.0]]}, 400, "rows of different lengths"),
    "text": ({"input": [["a"] * 16]}, 400, "input holds <U1, expected float32"),
    "truth": ({"input": [[True] * 16]}, 400, "input holds bool, expected float32"),
    "huge": ({"input": [[1e39] * 16]}, 400, "not finite in float32"),
    "NaN": (b'{"input": [[' + b", ".join([b"NaN"] * 16) + b"]]}", 400, "not finite"),
    "key": ({"tokens": [[1.0] * 16]}, 400, "an object with one key"),
    "no JSON": (b"{", 400, "the body is not JSON"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_was_not_verified_is_refused(served: Served, what: str) -> None:
    body, status, message = WRONG[what]
    got, document = ask(served[1], body)
    assert got == status
    assert document.keys() == {"error"}
    assert message in document["error"]


def test_one_that_cannot_be_run_takes_no_other_with_it(
    example: ModuleType, masked_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = example.VerifiedModel.__call__
    tried = []

    def fails(self: Any, inputs: dict[str, Any]) -> Any:
        tried.append(len(inputs["hidden_states"]))
        if (inputs["hidden_states"] == 300).any():
            raise example.InvalidArgument("token 300 is not in the vocabulary")
        return run(self, inputs)

    monkeypatch.setattr(example.VerifiedModel, "__call__", fails)
    batcher = example.Batcher(example.VerifiedModel(masked_folder, threads=1), 20.0)
    values = (1, 2, 300, 4)
    answers = [batcher.submit(np.full((3 + v % 5, 16), v, dtype=np.float32)) for v in values]
    batcher.close()
    assert tried == [4, 1, 1, 1, 1]
    for value, answer in zip(values, answers, strict=True):
        if value == 300:
            with pytest.raises(example.InvalidArgument, match="token 300"):
                answer.result(timeout=0)
        else:
            outputs, batch = answer.result(timeout=0)
            assert (outputs["output"].shape, batch) == ((3 + value % 5, 16), 1)


def test_threads_may_share_a_model(example: ModuleType, masked_folder: Path) -> None:
    """Without the batcher: eight threads, one session, another shape in each."""
    model = example.VerifiedModel(masked_folder, threads=2)
    random = np.random.default_rng(0)
    inputs = [
        {
            "hidden_states": random.standard_normal((1 + n % MOST, n, 16)).astype(np.float32),
            "attention_mask": random.random((1 + n % MOST, n)) < 0.7,
        }
        for n in LENGTHS
    ]
    alone = [model(each)["output"].tobytes() for each in inputs]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(model, inputs * 20))
    assert [outputs["output"].tobytes() for outputs in together] == alone * 20


def test_no_more_wait_than_is_worth_it(
    example: ModuleType, masked_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, go_on = threading.Event(), threading.Event()
    run = example.VerifiedModel.__call__

    def waits(self: Any, inputs: dict[str, Any]) -> Any:
        running.set()
        assert go_on.wait(20)
        return run(self, inputs)

    monkeypatch.setattr(example.VerifiedModel, "__call__", waits)
    monkeypatch.setattr(example, "MAX_WAITING", 2)
    batcher = example.Batcher(example.VerifiedModel(masked_folder, threads=1), 0.0)
    tokens = np.zeros((3, 16), dtype=np.float32)
    answers = [batcher.submit(tokens)]
    assert running.wait(20)
    answers += [batcher.submit(tokens), batcher.submit(tokens)]
    with pytest.raises(queue.Full):
        batcher.submit(tokens)
    go_on.set()
    assert [answer.result(timeout=20)[1] for answer in answers] == [1, 2, 2]
    batcher.close()


@pytest.mark.parametrize(
    ("error", "status"), [("InvalidArgument", 400), ("queue.Full", 503), ("TypeError", 500)]
)
def test_the_status_says_whose_fault_it_is(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: str, status: int
) -> None:
    example, service = served
    logged = []

    def fails(tokens: object) -> None:
        raise {"queue.Full": queue.Full, "TypeError": TypeError}.get(
            error, example.InvalidArgument
        )("what is inside")

    monkeypatch.setattr(service.batcher, "submit", fails)
    monkeypatch.setattr(service, "handle_error", lambda *_: logged.append(sys.exc_info()[0]))
    got, document = ask(service, rows(3))
    assert got == status
    assert ("what is inside" in document["error"]) == (status == 400)
    assert ask(service, b"", "/health", "GET")[0] == 200
    assert logged == ([TypeError] if status == 500 else [])


def test_health_names_the_ranges(served: Served) -> None:
    ranges = {"batch": [1, MOST], "sequence": [1, LONGEST]}
    expected = {"artifact": ARTIFACT, "verified": ranges}
    assert ask(served[1], b"", "/health", "GET") == (200, expected)
    assert ask(served[1], b"", "/other", "GET")[0] == 404
    assert ask(served[1], rows(1), "/other")[0] == 404


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(inputs=a["inputs"][:1]), "build with --mask and --entry forward"),
        (lambda a: a["axes"][0].update(verified=[2, 4]), "batch is 1, but"),
        (lambda a: a.update(sha256="0" * 64), "has SHA-256"),
    ],
    ids=["mask", "batch", "hash"],
)
def test_an_artifact_that_cannot_be_batched_is_refused(
    example: ModuleType, masked_copy: Path, change: Change, message: str
) -> None:
    edit(masked_copy, lambda document: change(entry(document, ARTIFACT)))
    with pytest.raises(example.Refused, match=message):
        example.Batcher(example.VerifiedModel(masked_copy), 0.0)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
def test_the_command_serves_until_it_is_told_to_stop(
    masked_folder: Path, sequences: list[Sequence]
) -> None:
    command = [sys.executable, str(EXAMPLES / "serve_onnx.py"), str(masked_folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"{ARTIFACT} at http://127.0.0.1:")
        connection = http.client.HTTPConnection("127.0.0.1", int(line.rsplit(":", 1)[1]))
        connection.request("POST", "/run", json.dumps(sequences[0].body))
        document = json.loads(connection.getresponse().read())
        assert sequences[0].judge(document).passed
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_a_port_that_is_taken_ends_the_command(served: Served, masked_folder: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "serve_onnx.py"), str(masked_folder)]
    command += ["--port", str(served[1].server_port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
