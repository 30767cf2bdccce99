"""What Job and Profile need beyond the core: `await`, and a trace in a file.

They are attached to the classes of the C++ core when the package is imported.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import asyncio


def _await(self: _core.Job) -> Generator[Any, None, Any]:
    """Suspend the coroutine until the job is done; its result, or what it raised."""
    import asyncio  # costs a third of the import of NumPy, and whoever awaits has it

    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not finished.done():  # the coroutine may have been cancelled
            finished.set_result(None)

    def on_done(_: _core.Job) -> None:  # on the queue's thread
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish)

    self.add_done_callback(on_done)
    yield from finished
    return self.result()


def _save_trace(self: _core.Profile, path: str | os.PathLike[str]) -> None:
    """Write the compilation and the last run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(self.trace_json())


_core.Job.__await__ = _await  # type: ignore[method-assign]
_core.Profile.save_trace = _save_trace  # type: ignore[method-assign]
