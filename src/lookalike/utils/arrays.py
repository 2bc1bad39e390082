"""The type of a NumPy array whose contents a comment describes."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
