"""Ctrl-C where compiled code would abort the process."""

import signal
from collections.abc import Iterator

import pytest

from linattn_runtime_checks.processes import progress
from linattn_runtime_checks.processes.progress import interrupts_wait, note_interrupts


@pytest.fixture(autouse=True)
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(progress._Interrupts, "seen", False)
    before = signal.getsignal(signal.SIGINT)
    note_interrupts()
    yield
    signal.signal(signal.SIGINT, before)


def press(times: int, reached: list[int]) -> None:
    for time in range(times):
        signal.raise_signal(signal.SIGINT)
        reached.append(time)


def within(times: int, reached: list[int]) -> None:
    with interrupts_wait():
        press(times, reached)


def test_it_waits_for_the_end_of_the_block() -> None:
    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        within(1, reached)
    assert reached == [0]
    within(0, reached)


def test_a_second_one_does_not_wait() -> None:
    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        within(2, reached)
    assert reached == [0]


def test_elsewhere_it_ends_the_work_at_once() -> None:
    reached: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        press(1, reached)
    assert not reached
