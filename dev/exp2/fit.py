#!/usr/bin/env python3
"""Coefficients of the f32 polynomial for (1 - 2^-10) 2^r, r in [-2^-11, 1 + 2^-11]
(Horner, degree 5, correctly rounded fma).

1. A minimax fit in float64. What is made small is |relative error| plus a bound
   of the evaluation's last roundings at that r, so that the polynomial is
   tighter where the rounding is looser.
2. The coefficients are rounded to f32 from the low degree up (K1 and K2 over a
   few ulps), the remaining ones being fitted again each time.
3. Local search over ulps around the best, scored by the error of the f32
   evaluation; the few best are scored again on a larger sample.

Needs numpy. The figures printed are over a sample of r; check.c goes over every f32.
"""
import sys
import numpy as np

F = np.float32
DEG = 5
A = 1 - 2.0**-10
LO, HI = -(2.0**-11), 1 + 2.0**-11


def ulp(x):
    return 2.0 ** (np.floor(np.log2(np.abs(x))) - 23)


def step(x, n):
    return F(x) + F(n) * F(ulp(float(x)))


def horner32(k, r):
    """Each step an f32 fma: the product of two f32 is exact in float64; that the
    sum is rounded twice can only matter in near-ties, which check.c (true fmaf)
    covers."""
    r64 = r.astype(np.float64)
    p = np.full(r.shape, k[-1], F)
    for c in k[-2::-1]:
        p = (p * r64 + np.float64(c)).astype(F)
    return p


GRID = (LO + HI) / 2 - (HI - LO) / 2 * np.cos(np.linspace(0, np.pi, 241))
TARGET = A * 2.0**GRID
BASIS = np.stack([GRID**i / TARGET for i in range(DEG + 1)], 1)
TAYLOR = [A * np.log(2.0) ** i / np.prod(np.arange(1.0, i + 1)) for i in range(DEG + 1)]
# relative error of the last three roundings
BOUND = sum(np.abs(GRID) ** j * ulp(np.polyval(TAYLOR[: j - 1 if j else None : -1], GRID)) / 2
            for j in range(3)) / TARGET


def minimax(fixed):
    """Lawson iteration for min max(|rel. error| + BOUND) on the grid, with the
    coefficients fixed = {degree: value} held."""
    free = [i for i in range(DEG + 1) if i not in fixed]
    rhs = 1 - sum((v * BASIS[:, i] for i, v in fixed.items()), np.zeros_like(GRID))
    a = BASIS[:, free]
    w = np.full(GRID.shape, 1.0 / GRID.size)
    best = (np.inf, None)
    for _ in range(250):
        s = np.sqrt(w)[:, None]
        c = np.linalg.lstsq(a * s, rhs * s[:, 0], rcond=None)[0]
        tot = np.abs(a @ c - rhs) + BOUND * (np.abs(GRID) > 2.0**-10)
        if tot.max() < best[0]:
            best = (tot.max(), c)
        w *= tot
        w /= w.sum()
    k = np.zeros(DEG + 1)
    for i, v in fixed.items():
        k[i] = v
    k[free] = best[1]
    return best[0], k


class Score:
    """Max and mean relative error of the f32 evaluation on a sample, and whether
    p(1) <= 2 p(0) and p(HI) < 2."""

    def __init__(self, n, seed=1):
        rng = np.random.default_rng(seed)
        r = np.concatenate([np.linspace(LO, HI, n // 2), rng.uniform(LO, HI, n // 2)])
        self.r = r.astype(F)
        self.f = A * np.exp2(self.r.astype(np.float64))

    def __call__(self, k):
        e = horner32(k, self.r) / self.f - 1
        a, b, c = (float(v) for v in horner32(k, np.array([0, 1, HI], F)))
        ok = b <= 2 * a and c < 2 and min(k) > 0
        return np.abs(e).max() + (0 if ok else 1e-7), e.mean()


def search(k0):
    small, big = Score(1 << 14), Score(1 << 21, seed=2)
    fixed0 = {0: float(k0)}
    level, k = minimax(fixed0)
    cands = []
    for d1 in range(-6, 7):
        k1 = step(k[1], d1)
        lev1, kk = minimax({**fixed0, 1: float(k1)})
        if lev1 > 1.2 * level:
            continue
        for d2 in range(-4, 5):
            k2 = step(kk[2], d2)
            _, c = minimax({**fixed0, 1: float(k1), 2: float(k2)})
            c = [F(v) for v in c]
            cands.append((small(c)[0], c))
    cands.sort(key=lambda x: x[0])
    rng = np.random.default_rng(7)
    pool = cands[:8]
    for cost, c in cands[:8]:
        for _ in range(500):
            t = list(c)
            for i in range(1, DEG + 1):
                w = [0, 1, 2, 6, 30, 200][i]
                if rng.random() < 0.5:
                    t[i] = step(t[i], rng.integers(-w, w + 1))
            v = small(t)[0]
            if v < cost:
                cost, c = v, t
                pool.append((cost, c))
    pool = sorted(pool, key=lambda x: x[0])[:24]
    return level, sorted(((*big(c), c) for _, c in pool), key=lambda x: x[0])


def hexf(v):
    m, x = float(v).hex().split("p")
    return f"{m.rstrip('0').rstrip('.')}p{x}"


def report(name, k0, shown=1):
    level, ranked = search(k0)
    for m, mean, c in ranked[:shown]:
        e = np.abs(BASIS @ np.array([float(v) for v in c]) - 1).max()
        print(f"{name}: max rel. error {m:.4e} (polynomial alone {e:.4e}, real coefficients with "
              f"rounding bound {level:.4e}), mean {mean:+.2e}\n  {' '.join(map(hexf, c))}")
    sys.stdout.flush()


if __name__ == "__main__":
    report("K0 = 1 - 2^-10", F(A), shown=4)
    for n in (-3, -2, -1, 1, 2, 3):
        report(f"K0 = 1 - 2^-10 {n:+d} ulp", step(F(A), n))
