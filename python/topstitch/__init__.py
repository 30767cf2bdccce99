"""topstitch: describe mathematics as a graph, differentiate, stitch, compile and run it.

The work is done by the C++ library; this package is its face.
"""

from ._core import __version__

__all__ = ["__version__"]
