"""A batch service: sequences of different lengths that arrive together are run as one batch.

    python examples/serve_onnx.py FOLDER [--artifact ID] [--port 8080] [--wait-ms 5] [--threads 0]

POST /run takes one sequence, ``{"input": [...]}``: ``[sequence]`` whole numbers or
``[sequence][width]`` numbers, as the artifact takes them. It answers
``{"outputs": {name: [...]}, "batch": 3}``: the outputs of that sequence alone, and how many were
run together. GET /health answers the verified ranges.

Sequences are padded on the right to the longest of the batch, and masked, so the artifact must
have an ``attention_mask`` (``linattn-export build --mask``). 400 is an input that was not verified
or that the model cannot take, 413 one that is too long, 503 more waiting than is worth it. Needs
onnxruntime and numpy. Copy this file and run_onnx.py beside it, and put a proxy that speaks TLS
in front of it.
"""

import argparse
import json
import queue
import signal
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from run_onnx import Refused, Tensors, VerifiedModel

MASK = "attention_mask"
MAX_WAITING = 256
BYTES_PER_NUMBER = 32  # of JSON, generously
PATIENCE = 30.0  # seconds for a client to send, and for a batch to be run


@dataclass
class Request:
    """One sequence, ``[sequence, ...]``, and where its outputs go."""

    tokens: NDArray[Any]
    answer: "Future[tuple[Tensors, int]]" = field(default_factory=Future)


class Batcher:
    """One thread that gathers sequences for a moment and runs them together.

    Only this thread runs the session, with all of ONNX Runtime's threads: two batches at once would
    take the cores from each other.
    """

    def __init__(self, model: VerifiedModel, wait: float) -> None:
        """Serve ``model``, and wait up to ``wait`` seconds for others after the first sequence.

        Raises:
            Refused: the artifact cannot be run on padded batches.
        """
        about = model.about
        specs = {spec["name"]: spec for spec in about["inputs"]}
        if MASK not in specs or len(specs) != 2 or about["states"]:
            raise Refused(
                f"{about['id']} takes {', '.join(specs)}; the service needs one input and {MASK}: "
                "build with --mask and --entry forward"
            )
        model.check_size("batch", 1)
        self.model = model
        self.longest = int(model.ranges["sequence"][1])
        (self.name,) = set(specs) - {MASK}
        self.dtype = np.dtype(specs[self.name]["dtype"])
        self.width = tuple(specs[self.name]["axes"][2:])
        self._mask_dtype = np.dtype(specs[MASK]["dtype"])
        self._wait = wait
        self._waiting: queue.Queue[Request | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, tokens: NDArray[Any]) -> "Future[tuple[Tensors, int]]":
        """The outputs of ``tokens``, and the size of the batch, as soon as it has been run.

        Raises:
            Refused: its length was not verified.
            queue.Full: too many wait already.
        """
        if not 1 <= len(tokens) <= self.longest:
            self.model.check_size("sequence", len(tokens))
        request = Request(tokens)
        self._waiting.put_nowait(request)
        return request.answer

    def close(self) -> None:
        """Answer what waits, and stop."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        open_ = True
        while open_:
            first = self._waiting.get()
            batch = [] if first is None else [first]
            open_ = first is not None
            end = time.monotonic() + self._wait
            while open_ and len(batch) < self.model.ranges["batch"][1]:
                try:
                    following = self._waiting.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    break
                if following is None:
                    open_ = False
                else:
                    batch.append(following)
            if batch:
                self._answer(batch)

    def _answer(self, batch: list[Request]) -> None:
        try:
            outputs = self.model(self.pad([request.tokens for request in batch]))
        except Exception as error:
            if len(batch) == 1:  # its own fault, which its client is told
                batch[0].answer.set_exception(error)
                return
            for request in batch:  # one that cannot be run must not take the others with it
                self._answer([request])
            return
        for row, request in enumerate(batch):
            length = len(request.tokens)
            cut = {
                spec["name"]: outputs[spec["name"]][row][:length]
                if spec["axes"][1:2] == ["sequence"]
                else outputs[spec["name"]][row]
                for spec in self.model.about["outputs"]
            }
            request.answer.set_result((cut, len(batch)))

    def pad(self, sequences: list[NDArray[Any]]) -> Tensors:
        """One batch ``[batch, sequence, ...]`` of zeros behind the sequences, and its mask."""
        length = max(self.model.ranges["sequence"][0], *map(len, sequences))
        tokens = np.zeros((len(sequences), length, *self.width), dtype=self.dtype)
        mask = np.zeros((len(sequences), length), dtype=self._mask_dtype)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        return {self.name: tokens, MASK: mask}


def read_tokens(body: bytes, dtype: np.dtype[Any], width: tuple[int, ...]) -> NDArray[Any]:
    """The sequence ``[sequence, *width]`` in the JSON of a request.

    Raises:
        Refused: it holds something else.
    """
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Refused(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or set(document) != {"input"}:
        raise Refused('the body must be an object with one key, {"input": [...]}')
    expected = ", ".join(["sequence", *map(str, width)])
    try:
        given = np.array(document["input"])
    except ValueError as error:
        raise Refused(f"input has rows of different lengths; expected [{expected}]") from error
    if given.ndim != 1 + len(width) or given.shape[1:] != width or not given.size:
        raise Refused(f"input has shape {list(given.shape)}, expected [{expected}]")
    if given.dtype.kind not in ("i" if dtype.kind == "i" else "if"):
        raise Refused(f"input holds {given.dtype}, expected {dtype}")
    with np.errstate(over="ignore"):
        tokens = given.astype(dtype)
    if not np.isfinite(tokens).all():
        raise Refused(f"input holds a number that is not finite in {dtype}")
    return tokens


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON, errors too."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    disable_nagle_algorithm = True  # head and body are two writes, and the second must not wait
    server: "Service"

    def do_GET(self) -> None:
        """The health and the ranges."""
        if self.path != "/health":
            return self.reply(HTTPStatus.NOT_FOUND, {"error": "there are GET /health, POST /run"})
        model = self.server.batcher.model
        return self.reply(HTTPStatus.OK, {"artifact": model.about["id"], "verified": model.ranges})

    def do_POST(self) -> None:
        """One sequence."""
        batcher = self.server.batcher
        try:
            size = int(self.headers["Content-Length"])
        except (TypeError, ValueError):
            size = -1
        if size < 0:
            self.close_connection = True
            return self.reply(HTTPStatus.LENGTH_REQUIRED, {"error": "Content-Length is missing"})
        most = 64 + BYTES_PER_NUMBER * batcher.longest * int(np.prod(batcher.width))
        if size > most:
            self.close_connection = True  # what it sends is not read
            error = f"the body has {size} bytes; {batcher.longest} tokens, which were verified, "
            error += f"take less than {most}"
            return self.reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": error})
        body = self.rfile.read(size)
        if self.path != "/run":
            return self.reply(HTTPStatus.NOT_FOUND, {"error": "there are GET /health, POST /run"})
        try:
            tokens = read_tokens(body, batcher.dtype, batcher.width)
            outputs, batch = batcher.submit(tokens).result(timeout=PATIENCE)
            if not all(np.isfinite(tensor).all() for tensor in outputs.values()):
                raise Refused("the outputs are not finite; input must hold smaller numbers")
        except Refused as error:
            too_long = error.axis == "sequence"
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_long else HTTPStatus.BAD_REQUEST
            return self.reply(status, {"error": str(error)})
        except InvalidArgument as error:  # such as a token outside of the vocabulary
            return self.reply(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except (queue.Full, TimeoutError):
            return self.reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "busy; try again later"})
        except Exception:
            self.reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "see the service's own log"})
            raise
        values = {name: tensor.tolist() for name, tensor in outputs.items()}
        return self.reply(HTTPStatus.OK, {"outputs": values, "batch": batch})

    def reply(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        """Send ``document``."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing for each request."""


class Service(ThreadingHTTPServer):
    """A thread for each connection; they all wait for one :class:`Batcher`."""

    request_queue_size = MAX_WAITING
    daemon_threads = True

    def __init__(self, address: tuple[str, int], batcher: Batcher) -> None:
        super().__init__(address, Handler)
        self.batcher = batcher

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Serve a verified ONNX artifact in batches.")
    parser.add_argument("folder", type=Path, help="what linattn-export build --mask wrote")
    parser.add_argument("--artifact", help="default: the first ONNX file of the folder")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one (%(default)s)")
    parser.add_argument("--wait-ms", type=float, default=5.0, help="for others (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of ONNX Runtime; 0: all cores")
    asked = parser.parse_args()
    try:
        model = VerifiedModel(asked.folder, asked.artifact, asked.threads)
        batcher = Batcher(model, asked.wait_ms / 1000)
    except Refused as error:
        raise SystemExit(f"refused: {error}") from None
    with Service((asked.host, asked.port), batcher) as service:
        # Another thread's work: shutdown() waits for the loop that the signal has interrupted.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=service.shutdown).start())
        print(f"{model.about['id']} at {service.url}", flush=True)
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            batcher.close()


if __name__ == "__main__":
    main()
