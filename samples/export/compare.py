"""compare.py A.npy B.npy: compares two arrays. Exit status 1 if the largest difference exceeds 1e-5 times the largest
magnitude of B."""
import sys

import numpy as np

a, b = (np.load(name) for name in sys.argv[1:3])
assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
worst = abs(a - b).max() / abs(b).max()
print("equal to rounding" if worst <= 1e-5 else f"they differ: {worst:.2g}")
sys.exit(int(worst > 1e-5))
