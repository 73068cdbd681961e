#!/usr/bin/python3
"""Prints the polynomials of runtime/kernels/c/math.h: fits that minimise the largest weighted error.

Each is a least-squares fit on Chebyshev points whose weights are raised where the error is largest (Lawson's algorithm).
Needs python3-numpy; the tests do not.
"""
import math
import numpy as np


def fit(name, function, low, high, degree, weight, points=4000, rounds=60):
    """Coefficients, lowest power first, and the largest error times weight(x, f(x))."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(points) + 0.5) / points)
    y = np.array([function(v) for v in x])
    powers = np.stack([x**i for i in range(degree + 1)], 1)
    weights, raised = weight(x, y), np.ones(points)
    for _ in range(rounds):
        w = weights * np.sqrt(raised)
        coefficients = np.linalg.lstsq(powers * w[:, None], y * w, rcond=None)[0]
        error = np.abs((powers @ coefficients - y) * weights)
        raised *= error + 1e-300
        raised = np.maximum(raised / raised.sum(), 1e-12)
    print("%-10s %s  largest error %.2g" % (name, " ".join("%.8g" % c for c in coefficients), error.max()))


def erf_far(x):
    return (-math.log(math.erfc(x)) - x) / x


# e^r = 1 + r + r^2 P(r)
fit("exp", lambda r: (math.expm1(r) - r) / (r * r) if abs(r) > 1e-4 else 0.5 + r / 6, -0.347, 0.347, 4,
    lambda r, y: r * r / np.exp(r))
# log(1 + f) = f - f^2 / 2 + f^3 P(f)
fit("log", lambda f: (math.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-3 else 1 / 3 - f / 4 + f * f / 5,
    0.5**0.5 - 1, 2**0.5 - 1, 7, lambda f, y: f * f * np.abs(f / np.log1p(f)))
# tanh(x) = x + x z P(z), z = x^2
fit("tanh", lambda z: (math.tanh(z**0.5) / z**0.5 - 1) / z if z > 1e-6 else -1 / 3 + 2 * z / 15, 0, 0.3907, 4,
    lambda z, y: z / (1 + z * y))
# erf(x) = x + x P(z), z = x^2
fit("erf near", lambda z: math.erf(z**0.5) / z**0.5 - 1 if z > 1e-12 else 2 / math.pi**0.5 - 1, 0, 0.93**2, 5,
    lambda z, y: 1 / (1 + y))
# erf(x) = 1 - e^-(x + x Q(x)); the weight is what an error of Q does to erf
fit("erf far", erf_far, 0.92, 4.0, 5, lambda x, y: np.array([v * math.erfc(v) / math.erf(v) for v in x]))
