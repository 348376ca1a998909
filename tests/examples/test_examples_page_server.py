"""``examples/page/serve.py``: what it serves and what it does not."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from golden_runs import EXAMPLES, example_module

Get = tuple[int, dict[str, str], bytes]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, with an empty onnxruntime-web."""
    module = example_module(EXAMPLES / "page" / "serve.py")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "ort.wasm").write_bytes(b"\0asm")
    monkeypatch.setattr(module, "RUNTIME", tmp_path / "dist")
    return module


@pytest.fixture
def port(example: ModuleType, tmp_path: Path) -> Iterator[int]:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / example.MANIFEST).write_text("{}")
    (tmp_path / "secret").write_text("not to be served")
    with example.server(tmp_path / "out", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def get(port: int, path: str) -> Get:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "kind", "start"),
    [
        ("/", "text/html", b"<!doctype html>"),
        ("/page.mjs", "text/javascript", b"// Runs the classifier"),
        ("/verify.mjs", "text/javascript", b"// What the manifest"),
        ("/model/linattn_manifest.json", "application/json", b"{}"),
        ("/ort/ort.wasm", "application/wasm", b"\0asm"),
    ],
)
def test_the_parts_of_the_page(port: int, path: str, kind: str, start: bytes) -> None:
    status, headers, body = get(port, path)
    assert status == 200
    assert headers["Content-type"].split(";")[0] == kind
    assert headers["Content-Security-Policy"].startswith("default-src 'self'; script-src 'self'")
    assert body.startswith(start)


@pytest.mark.parametrize(
    "path",
    [
        "/model/../secret",
        "/model/%2e%2e/secret",
        "/ort/../secret",
        "/../run_onnx.py",
        "/run_onnx.py",
    ],
)
def test_nothing_else_is_served(port: int, path: str) -> None:
    status, _, body = get(port, path)
    assert status == 404
    assert b"not to be served" not in body


def test_what_is_missing_is_said(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=f"{tmp_path} holds no linattn_manifest.json; give what"):
        example.server(tmp_path, 0)
    (tmp_path / example.MANIFEST).write_text("{}")
    monkeypatch.setattr(example, "RUNTIME", tmp_path / "nothing")
    with pytest.raises(SystemExit, match=r"nothing; run 'npm ci' in .*page"):
        example.server(tmp_path, 0)
