"""How tests start ``examples/serve_onnx.py`` and ask it."""

import http.client
import importlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from golden_runs import EXAMPLES

CLIENTS = 8


def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, which finds run_onnx.py beside it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("serve_onnx")


@contextmanager
def serving(example: ModuleType, folder: Path) -> Iterator[Any]:
    """The service on a free port; it waits long enough for others to arrive."""
    batcher = example.Batcher(example.VerifiedModel(folder, threads=1), 0.02)
    with example.Service(("127.0.0.1", 0), batcher) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()
            batcher.close()


Answer = tuple[int, dict[str, Any]]


def ask(service: Any, body: object, path: str = "/run", method: str = "POST") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", service.server_port, timeout=20)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return answer.status, document
