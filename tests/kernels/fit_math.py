#!/usr/bin/python3
"""Prints the polynomials of runtime/kernels/c/elementary.h: fits that minimise the largest weighted error.

Each is a least-squares fit on Chebyshev points whose weights are raised where the error is largest (Lawson's algorithm).
Needs python3-numpy and python3-mpmath; the tests do not.
"""
import math

import mpmath as mp
import numpy as np


def fit(name, function, low, high, degree, weight, points=2000, rounds=80, digits=8):
    """Coefficients, lowest power first, and the largest error times weight(x, f(x))."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(points) + 0.5) / points)
    y = np.array([float(function(v)) for v in x])
    powers = np.stack([x**i for i in range(degree + 1)], 1)
    weights, raised = weight(x, y), np.ones(points)
    for _ in range(rounds):
        w = weights * np.sqrt(raised)
        coefficients = np.linalg.lstsq(powers * w[:, None], y * w, rcond=None)[0]
        error = np.abs((powers @ coefficients - y) * weights)
        raised *= error + 1e-300
        raised = np.maximum(raised / raised.sum(), 1e-12)
    print("%-10s %s  largest error %.2g" % (name, " ".join("%.*g" % (digits, c) for c in coefficients), error.max()))


def erf_far(x):
    return (-math.log(math.erfc(x)) - x) / x


def odd(function):
    """P of function(x) = x + x z P(z), z = x^2."""
    return lambda z: (function(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


mp.mp.prec = 200
LEAST = 1e-9
relative = lambda z, y: z / (1 + z * y)

# e^r = 1 + r + r^2 P(r), of exp, erf and pow
for name, degree, digits in (("exp", 4, 8), ("exp of erf", 3, 8), ("exp of pow", 6, 17)):
    fit(name, lambda r: (mp.expm1(r) - r) / mp.mpf(r) ** 2, -0.3467, 0.3467, degree, lambda r, y: r * r / np.exp(r), digits=digits)
# log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2
fit("log wide", lambda z: 2 * odd(mp.atanh)(z), LEAST, 0.02944, 4, lambda z, y: z / (2 + z * y), digits=17)
for name, function, high, degree in (("atan", mp.atan, 1, 8), ("asin", mp.asin, 0.25, 4), ("sin", mp.sin, 0.617, 2)):
    fit(name, odd(function), LEAST, high, degree, relative)
# cos(x) = 1 - z / 2 + z^2 P(z), z = x^2; tan is a quotient of a longer sine and cosine
for name, degree, digits in (("cos", 2, 8), ("cos of tan", 3, 17)):
    fit(name, lambda z: (mp.cos(mp.sqrt(z)) - 1 + mp.mpf(z) / 2) / mp.mpf(z) ** 2, 1e-6, 0.617, degree,
        lambda z, y: z * z / np.cos(np.sqrt(z)), digits=digits)
fit("sin of tan", odd(mp.sin), LEAST, 0.617, 3, relative, digits=17)
FINER = {"points": 4000, "rounds": 60}
# log(1 + f) = f - f^2 / 2 + f^3 P(f)
fit("log", lambda f: (math.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-3 else 1 / 3 - f / 4 + f * f / 5,
    0.5**0.5 - 1, 2**0.5 - 1, 7, lambda f, y: f * f * np.abs(f / np.log1p(f)), **FINER)
# erf(x) = x + x P(z), z = x^2
fit("erf near", lambda z: math.erf(z**0.5) / z**0.5 - 1 if z > 1e-12 else 2 / math.pi**0.5 - 1, 0, 0.93**2, 5,
    lambda z, y: 1 / (1 + y), **FINER)
# erf(x) = 1 - e^-(x + x Q(x)); the weight is what an error of Q does to erf
fit("erf far", erf_far, 0.92, 4.0, 5, lambda x, y: np.array([v * math.erfc(v) / math.erf(v) for v in x]), **FINER)
