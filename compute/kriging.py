"""Ordinary kriging on the nearest measured neighbours, with a linear variogram.

Model: log efficiency is a random function whose increments grow with distance h in coordinate space, Var[y(a) - y(b)] = 2 g(h),
g(h) = slope * (nugget + h) for h > 0, and g(0) = 0. The best linear unbiased estimate from n neighbours solves

    | G  1 | | w |   | g |
    | 1' 0 | | u | = | 1 |        y* = w' y,   variance = slope * (w' g + u)

with G the variogram between neighbours and g from neighbours to the query. The weights do not depend on `slope`; it scales the variance and is
calibrated per family by leave-one-out (mean of squared error over unscaled variance). Beyond the data the estimate stays at the level of the
nearest rows while the variance grows with distance. Source: Cressie, Statistics for Spatial Data (1993), section 3.2.
"""

import numpy as np
from numba import njit

NEIGHBOURS = 10
NUGGET = 0.05
"""In units of log shape: rows closer than e^0.05 are told apart by noise more than by shape. Both tuned by leave-one-out over all families."""
Array = np.ndarray


@njit(cache=True)
def krige(query: Array, family: Array, ptr: Array, x: Array, y: Array, skip: Array, mean: Array, variance: Array, nearest: Array) -> None:
    """Estimate y at K points, each from the rows of its family.

    query float64[K, D]; family int64[K] (-1: leave mean at 0); ptr int64[F + 1], x float64[N, D], y float64[N]: rows by family;
    skip int64[K]: a row to leave out, -1 for none. Filled: mean float64[K]; variance float64[K], to be multiplied by the family's slope (0 on a
    measured point); nearest int64[K], the row of a measured point that was hit, else -1.
    """
    dims = x.shape[1]
    size = NEIGHBOURS + 1
    chosen = np.empty(NEIGHBOURS, np.int64)
    gap = np.empty(NEIGHBOURS)
    matrix = np.empty((size, size + 1))
    weight = np.empty(size)
    for i in range(len(query)):
        mean[i], variance[i], nearest[i] = 0.0, 0.0, -1
        if family[i] < 0:
            continue

        # the nearest rows, by insertion into a short sorted list
        found = 0
        for row in range(ptr[family[i]], ptr[family[i] + 1]):
            if row == skip[i]:
                continue
            square = 0.0
            for d in range(dims):
                delta = query[i, d] - x[row, d]
                square += delta * delta
            if found == NEIGHBOURS and square >= gap[found - 1]:
                continue
            place = found if found < NEIGHBOURS else NEIGHBOURS - 1
            while place > 0 and gap[place - 1] > square:
                gap[place], chosen[place] = gap[place - 1], chosen[place - 1]
                place -= 1
            gap[place], chosen[place] = square, row
            found = min(found + 1, NEIGHBOURS)
        if found == 0:
            continue
        if gap[0] < 1e-16:
            mean[i], nearest[i] = y[chosen[0]], chosen[0]
            continue

        # the kriging system, augmented by its right-hand side in the last column
        for a in range(found):
            for b in range(a):
                square = 0.0
                for d in range(dims):
                    delta = x[chosen[a], d] - x[chosen[b], d]
                    square += delta * delta
                matrix[a, b] = matrix[b, a] = NUGGET + np.sqrt(square)
            matrix[a, a] = 0.0
            matrix[a, found] = matrix[found, a] = 1.0
            matrix[a, found + 1] = NUGGET + np.sqrt(gap[a])
        matrix[found, found], matrix[found, found + 1] = 0.0, 1.0

        _solve(matrix, weight, found + 1)
        for a in range(found):
            mean[i] += weight[a] * y[chosen[a]]
            variance[i] += weight[a] * (NUGGET + np.sqrt(gap[a]))
        variance[i] = max(variance[i] + weight[found], NUGGET)


@njit(cache=True)
def _solve(matrix: Array, solution: Array, n: int) -> None:
    """Gaussian elimination with partial pivoting of an n x (n + 1) system, in place."""
    for col in range(n):
        pivot = col
        for row in range(col + 1, n):
            if abs(matrix[row, col]) > abs(matrix[pivot, col]):
                pivot = row
        if pivot != col:
            for k in range(col, n + 1):
                matrix[col, k], matrix[pivot, k] = matrix[pivot, k], matrix[col, k]
        for row in range(col + 1, n):
            factor = matrix[row, col] / matrix[col, col]
            for k in range(col + 1, n + 1):
                matrix[row, k] -= factor * matrix[col, k]
    for row in range(n - 1, -1, -1):
        total = matrix[row, n]
        for k in range(row + 1, n):
            total -= matrix[row, k] * solution[k]
        solution[row] = total / matrix[row, row]


def estimate(query: Array, family: Array, ptr: Array, x: Array, y: Array, skip: Array | None = None) -> tuple[Array, Array, Array]:
    """Return mean, unscaled variance and hit row of `krige` as fresh arrays."""
    count = len(query)
    mean, variance, nearest = np.zeros(count), np.zeros(count), np.full(count, -1, np.int64)
    krige(query, family, ptr, x, y, np.full(count, -1, np.int64) if skip is None else skip, mean, variance, nearest)
    return mean, variance, nearest
