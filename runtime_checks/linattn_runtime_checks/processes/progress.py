"""Progress on stderr: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LINE_EVERY_S = 10.0


class _Interrupts:
    """Remembers Ctrl-C: libraries were seen to swallow the KeyboardInterrupt that it raises."""

    seen = False
    waiting = False
    patient = False


def note_interrupts() -> None:
    """Let the next step of any piece of work end it, should Ctrl-C get lost before."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _handle)


def _handle(number: int, frame: object) -> None:
    first, _Interrupts.seen = not _Interrupts.seen, True
    if not (_Interrupts.waiting and (first or _Interrupts.patient)):
        raise KeyboardInterrupt


@contextmanager
def interrupts_wait(*, every: bool = False) -> Iterator[None]:
    """Let a first Ctrl-C wait for the end of the block.

    The compiled parts of onnx abort the process when Python code that they call raises; and a
    package that is interrupted while it is imported cannot be imported again.

    Args:
        every: let further ones wait too. Otherwise who asks twice does not want to wait.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed within the block.
    """
    outermost = not _Interrupts.waiting
    before = _Interrupts.waiting, _Interrupts.patient
    _Interrupts.waiting, _Interrupts.patient = True, every or _Interrupts.patient
    try:
        with _handled():
            yield
    finally:
        _Interrupts.waiting, _Interrupts.patient = before
        if _Interrupts.seen and outermost:
            _Interrupts.seen = False
            raise KeyboardInterrupt


@contextmanager
def _handled() -> Iterator[None]:
    """Ctrl-C is noted here, also in a process that never called :func:`note_interrupts`."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    _Interrupts.seen = False
    signal.signal(signal.SIGINT, _handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Progress:
    """Counts steps of one piece of work; this one says nothing."""

    def step(self, what: str) -> None:
        """One step, about to work on ``what``.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed, and lost.
        """
        if _Interrupts.seen and threading.current_thread() is threading.main_thread():
            _Interrupts.seen = False
            raise KeyboardInterrupt
        self._show(what)

    def _show(self, what: str) -> None:
        pass


class _Lines(Progress):
    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._done = title, total, 0
        self._last = time.monotonic()
        print(f"{title}: {total} steps", file=sys.stderr, flush=True)

    def _show(self, what: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY_S:
            self._last = now
            line = f"{self._title}: {self._done} of {self._total}, {what}"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Progress]:
    """Progress of ``total`` steps called ``title``."""
    if quiet:
        yield Progress()
    elif not sys.stderr.isatty():
        yield _Lines(title, total)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total, what="")

            class _Bar(Progress):
                def _show(self, what: str) -> None:
                    bar.update(task, advance=1, what=what)

            yield _Bar()
