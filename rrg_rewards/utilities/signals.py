"""Signals that a batch system, a container or a closed terminal sends to end a process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def ending_signals() -> list[signal.Signals]:
    """Return SIGTERM and SIGHUP, without those that the system lacks or the process ignores, as after ``nohup``."""
    known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
    return [one for one in known if one is not None and signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def handled_signals(receive: Callable[..., Any]) -> Iterator[None]:
    """Let a function handle the :func:`ending_signals` inside the block. Other threads than the main one cannot.

    Args:
        receive: Function of the number of the signal and the frame that it interrupts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {one: signal.signal(one, receive) for one in ending_signals()}
    try:
        yield
    finally:
        for one, handler in before.items():
            # None is a handler that was not set by Python.
            signal.signal(one, handler or signal.SIG_DFL)


@contextmanager
def signals_as_interrupts() -> Iterator[list[signal.Signals]]:
    """Let the first SIGTERM or SIGHUP act as an interrupt from the keyboard (Ctrl-C) inside the block.

    What handles an interrupt handles them, too: an event loop cancels its tasks, a run stops after its running calls.
    Further signals change nothing, because a launcher and the system may both send one, and clean-up takes time.

    Yields:
        A list that contains the signal, once there was one.

    Example:
        >>> try:
        ...     with signals_as_interrupts() as received:
        ...         signal.raise_signal(signal.SIGTERM)
        ... except KeyboardInterrupt:
        ...     print(received[0].name)
        SIGTERM
    """
    received: list[signal.Signals] = []

    def receive(number: int, frame: Any) -> None:
        if received:
            return
        received.append(signal.Signals(number))
        handler = signal.getsignal(signal.SIGINT)
        # SIGINT is ignored in processes that a shell starts in the background.
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    with handled_signals(receive):
        yield received
