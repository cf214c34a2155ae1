"""Max-min fair rates of bundles over shared links, by progressive filling.

Model. Bundle b moves at pace x_b and loads link l with a_lb x_b, where a_lb counts how many of its connections cross l (weighted by their
share of the bundle's bytes). Feasible: sum_b a_lb x_b <= C_l and x_b <= cap_b. An allocation is max-min fair when no pace can grow without
lowering one that is not larger; for a feasible set like this one that is so exactly when every bundle is at its own cap or crosses a
saturated link on which no other bundle is faster (Bertsekas and Gallager, Data Networks, 6.5.2).

Filling. All bundles grow at one common pace until a link saturates or a cap is reached; those concerned freeze and the others go on. Links
and caps that are reached at the same pace (to a relative 1e-12) freeze together, so a symmetric system takes one round.
"""

import numpy as np

from netsim.kernels.jit import kernel

TIE = 1.0 + 1e-12


@kernel
def solve(bundle_ptr, link_idx, coef, capacity, cap, pace, load, used):
    """Write the max-min fair pace of every bundle into `pace`.

    bundle_ptr int64[B + 1], link_idx int32[N], coef float64[N]: the links of each bundle and what it loads them with per unit of pace.
    capacity float64[L] and cap float64[B] in bytes/s (cap may be inf). `load` and `used` are workspaces float64[L].
    Pace is 0 for bundles that cross a link without capacity.
    """
    n_bundles = bundle_ptr.shape[0] - 1
    n_links = capacity.shape[0]
    load[:n_links] = 0.0
    used[:n_links] = 0.0
    pace[:n_bundles] = -1.0
    for k in range(bundle_ptr[n_bundles]):
        load[link_idx[k]] += coef[k]
    left = n_bundles
    while left > 0:
        # the pace at which the next link or cap is reached
        level = np.inf
        for link in range(n_links):
            if load[link] > 0.0:
                level = min(level, max(0.0, capacity[link] - used[link]) / load[link])
        for b in range(n_bundles):
            if pace[b] < 0.0:
                level = min(level, cap[b])
        limit = level * TIE
        # mark what is reached at this level before anything is subtracted
        froze = 0
        for b in range(n_bundles):
            if pace[b] >= 0.0:
                continue
            frozen = cap[b] <= limit
            if not frozen:
                for k in range(bundle_ptr[b], bundle_ptr[b + 1]):
                    link = link_idx[k]
                    if max(0.0, capacity[link] - used[link]) <= limit * load[link]:
                        frozen = True
                        break
            if frozen:
                pace[b] = -2.0
                froze += 1
        if froze == 0:  # nothing limits these bundles: no links and no caps
            for b in range(n_bundles):
                if pace[b] == -1.0:
                    pace[b] = np.inf
            return
        for b in range(n_bundles):
            if pace[b] == -2.0:
                pace[b] = min(level, cap[b])
                for k in range(bundle_ptr[b], bundle_ptr[b + 1]):
                    link = link_idx[k]
                    used[link] += coef[k] * pace[b]
                    load[link] -= coef[k]
        left -= froze
        # rounding must not leave a link with a load of nobody
        if left > 0:
            load[:n_links] = 0.0
            for b in range(n_bundles):
                if pace[b] == -1.0:
                    for k in range(bundle_ptr[b], bundle_ptr[b + 1]):
                        load[link_idx[k]] += coef[k]
