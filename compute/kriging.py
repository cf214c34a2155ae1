"""Ordinary kriging on the nearest measured neighbours, with a linear variogram.

Model: log efficiency is a random function whose increments grow with distance h in coordinate space, Var[y(a) - y(b)] = 2 g(h),
g(h) = slope * (nugget + h) for h > 0, and g(0) = 0. The best linear unbiased estimate from n neighbours solves

    | G  1 | | w |   | g |
    | 1' 0 | | u | = | 1 |        y* = w' y,   variance = slope * (w' g + u)

with G the variogram between neighbours and g from neighbours to the query. The weights do not depend on `slope`; it scales the variance and
is calibrated per family by leave-one-out (mean of squared error over unscaled variance). Beyond the data the estimate stays at the level of
the nearest rows while the variance grows with distance. Source: Cressie, Statistics for Spatial Data (1993), section 3.2.
"""

import numpy as np
from numba import njit

DIMS = 6
"""Coordinates of a point; a constant, so that the loops unroll."""
NEIGHBOURS = 6
NUGGET = 0.05
"""In units of log shape: rows closer than e^0.05 differ by noise more than by shape. Both tuned by leave-one-out over all families."""
Array = np.ndarray


@njit(cache=True, error_model="numpy")
def krige(query: Array, family: Array, ptr: Array, x: Array, y: Array, skip: Array, mean: Array, variance: Array, nearest: Array) -> None:
    """Estimate y at K points, each from the rows of its family.

    query float64[K, DIMS]; family int64[K] (-1: leave mean at 0); ptr int64[F + 1], x float64[DIMS, N], y float64[N]: rows by family; skip
    int64[K]: a row to leave out, -1 for none. Filled: mean float64[K]; variance float64[K], to be multiplied by the family's slope (0 on a
    measured point); nearest int64[K], the row of a measured point that was hit, else -1.
    """
    distance = np.empty(x.shape[1])
    chosen = np.empty(NEIGHBOURS, np.int64)
    gap = np.empty(NEIGHBOURS)
    near = np.empty((NEIGHBOURS, DIMS))
    lower = np.empty((NEIGHBOURS, NEIGHBOURS))
    u, v, w = np.empty(NEIGHBOURS), np.empty(NEIGHBOURS), np.empty(NEIGHBOURS)
    for i in range(len(query)):
        mean[i], variance[i], nearest[i] = 0.0, 0.0, -1
        if family[i] < 0:
            continue

        # squared distances to all rows of the family, a dimension at a time so that the compiler vectorises
        low, high = ptr[family[i]], ptr[family[i] + 1]
        far = distance[: high - low]
        far[:] = 0.0
        for d in range(DIMS):
            at = query[i, d]
            column = x[d, low:high]
            for j in range(high - low):
                far[j] += (at - column[j]) * (at - column[j])
        if low <= skip[i] < high:
            far[skip[i] - low] = np.inf

        # the nearest rows, by insertion into a short sorted list
        found = 0
        limit = np.inf
        for j in range(high - low):
            if far[j] >= limit:
                continue
            place = min(found, NEIGHBOURS - 1)
            while place > 0 and gap[place - 1] > far[j]:
                gap[place], chosen[place] = gap[place - 1], chosen[place - 1]
                place -= 1
            gap[place], chosen[place] = far[j], low + j
            found = min(found + 1, NEIGHBOURS)
            if found == NEIGHBOURS:
                limit = gap[NEIGHBOURS - 1]
        if found == 0:
            continue
        if gap[0] < 1e-16:
            mean[i], nearest[i] = y[chosen[0]], chosen[0]
            continue

        # covariances S - g for a sill S above all increments: positive definite, with the same weights;
        # Cholesky factor row by row, its diagonal inverted
        sill = 4.0 * (NUGGET + 2.0 * np.sqrt(gap[found - 1]))
        total_u, total_v = 0.0, 0.0
        for a in range(found):
            for d in range(DIMS):
                near[a, d] = x[d, chosen[a]]
            for b in range(a + 1):
                square = 0.0
                for d in range(DIMS):
                    delta = near[a, d] - near[b, d]
                    square += delta * delta
                entry = sill - (NUGGET + np.sqrt(square)) if a != b else sill
                for c in range(b):
                    entry -= lower[a, c] * lower[b, c]
                lower[a, b] = entry * lower[b, b] if a != b else 1.0 / np.sqrt(max(entry, 1e-12))
            head_u, head_v = sill - NUGGET - np.sqrt(gap[a]), 1.0
            for c in range(a):
                head_u -= lower[a, c] * u[c]
                head_v -= lower[a, c] * v[c]
            u[a], v[a] = head_u * lower[a, a], head_v * lower[a, a]
            total_u += u[a] * v[a]
            total_v += v[a] * v[a]

        # weights w = C^-1 (c - lambda 1), lambda from the condition that they add up to 1
        multiplier = (total_u - 1.0) / total_v
        for a in range(found - 1, -1, -1):
            weight = u[a] - multiplier * v[a]
            for c in range(a + 1, found):
                weight -= lower[c, a] * w[c]
            w[a] = weight * lower[a, a]
            mean[i] += w[a] * y[chosen[a]]
            variance[i] += w[a] * (NUGGET + np.sqrt(gap[a]))
        variance[i] = max(variance[i] - multiplier, NUGGET)


def estimate(query: Array, family: Array, ptr: Array, x: Array, y: Array, skip: Array | None = None) -> tuple[Array, Array, Array]:
    """Return mean, unscaled variance and hit row of `krige` as fresh arrays; x is float64[N, DIMS] here."""
    count = len(query)
    mean, variance, nearest = np.zeros(count), np.zeros(count), np.full(count, -1, np.int64)
    krige(query, family, ptr, np.ascontiguousarray(x.T), y, np.full(count, -1, np.int64) if skip is None else skip, mean, variance, nearest)
    return mean, variance, nearest
