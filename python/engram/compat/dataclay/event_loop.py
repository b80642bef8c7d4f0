"""An event loop in a thread of its own, which runs the coroutines of calls that are not async."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of this process; a fork's own is another one."""

_making = threading.Lock()


def get_dc_event_loop() -> asyncio.AbstractEventLoop:
    """Give the loop, which runs from its first use to the end of the process."""
    with _making:
        loop = _loops.get(os.getpid())
        if loop is None:
            _loops.clear()
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="dataclay", daemon=True).start()
        return loop


def run_dc_coroutine(func: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kw: Any) -> Any:
    """Run a coroutine function to its end, from code that is not async."""
    return asyncio.run_coroutine_threadsafe(func(*args, **kw), get_dc_event_loop()).result()
