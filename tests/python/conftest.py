"""Settings of the whole suite: kernels are compiled anew, without the user's disk cache."""

from __future__ import annotations

import os

os.environ["TOPSTITCH_CACHE_DIR"] = "off"  # before topstitch is imported; processes that tests start inherit it
