"""An event loop in which waiting takes no time: its clock jumps to the next scheduled call."""

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits, and records the requested time."""

    loop = None

    def select(self, timeout=None):
        events = super().select(0)
        if not events and timeout:
            self.loop.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a virtual clock that starts at 0."""

    def __init__(self):
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self):
        return self.now


def run_virtually(main):
    """Run a coroutine function of the loop to its end."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()
