"""Serves the page, onnxruntime-web and a folder of artifacts from this machine alone.

    cd examples/page && npm ci && python serve.py FOLDER [--port 8000]

FOLDER is what ``linattn-export build --model langid`` wrote. Any static host can take its place: it
needs the files of this folder, ``verify.mjs`` beside them, ``ort/`` with the files of the package
onnxruntime-web and ``model/`` with the manifest and the ONNX file.
"""

import argparse
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "node_modules" / "onnxruntime-web" / "dist"
MANIFEST = "linattn_manifest.json"


class Handler(SimpleHTTPRequestHandler):
    """Static files; ``model/`` and ``ort/`` lie in other folders."""

    def __init__(self, *args: object, model: Path, **options: object) -> None:
        self.model = model
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        """The file of an address; the base class leaves no way out of the folder."""
        first, _, rest = path.lstrip("/").partition("/")
        folder = {"model": self.model, "ort": RUNTIME}.get(first)
        if folder is None:
            folder, rest = (HERE.parent if first == "verify.mjs" else HERE), path
        self.directory = str(folder)
        return super().translate_path("/" + rest)

    def end_headers(self) -> None:
        """Nothing may come from elsewhere, and WebAssembly may be compiled."""
        policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src data:"
        self.send_header("Content-Security-Policy", policy)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of ``folder`` on this machine; ``port`` 0 takes a free one.

    Raises:
        SystemExit: there is nothing to serve.
    """
    if not (folder / MANIFEST).is_file():
        raise SystemExit(f"{folder} holds no {MANIFEST}; give what linattn-export build wrote")
    if not RUNTIME.is_dir():
        raise SystemExit(f"no {RUNTIME}; run 'npm ci' in {HERE}")
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, model=folder.resolve()))


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Serve the page.")
    parser.add_argument("folder", type=Path, help="what linattn-export build --model langid wrote")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")
    asked = parser.parse_args()
    with server(asked.folder, asked.port) as serving:
        print(f"http://127.0.0.1:{serving.server_port}/", flush=True)
        with suppress(KeyboardInterrupt):
            serving.serve_forever()


if __name__ == "__main__":
    main()
