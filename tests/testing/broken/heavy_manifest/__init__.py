"""A manifest that needs arrays to say its name."""

import numpy as np

SIZES = np.arange(3)
