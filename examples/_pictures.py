"""Pictures of what the examples did: curves over a run, and grids of images.

Drawn by matplotlib without a display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topstitch.examples._command_line import missing_package


def check_pictures() -> None:
    """Find out before a long run, not after it, whether pictures can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise missing_package(error, "pictures are drawn by matplotlib") from error


def save_curves(path: Path, panels: Sequence[tuple[str, str, Mapping[str, Sequence[float]]]]) -> None:
    """Panels side by side, each with the names of its axes and curves: what is along x, what is along y, the curves.

    The points of a curve are at 1, 2, 3, ...
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5 * len(panels), 3.5), layout="constrained")
    for axes, (x, y, curves) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        for name, values in curves.items():
            axes.plot(range(1, len(values) + 1), values, label=name, linewidth=1)
        axes.set(xlabel=x, ylabel=y)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if len(curves) > 1:
            axes.legend()
    figure.savefig(path, format="png")


def save_grid(path: Path, images: npt.NDArray[Any], columns: int, low: float = 0, high: float = 1) -> None:
    """Grey images [n, height, width] in a grid with that many columns, black at `low` and white at `high`."""
    from matplotlib.image import imsave

    count, height, width = images.shape
    rows = -(-count // columns)
    cells = np.full((rows * columns, height + 1, width + 1), high, images.dtype)  # a line below and beside each
    cells[:count, :height, :width] = images
    grid = cells.reshape(rows, columns, height + 1, width + 1).swapaxes(1, 2)
    grid = grid.reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]
    imsave(path, grid, cmap="gray", vmin=low, vmax=high, format="png")
