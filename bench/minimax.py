"""The polynomials of cpp/loopir/math_*.cpp: minimax fits by Remez' algorithm in multiple precision.

    python bench/minimax.py              all of them (some minutes)
    python bench/minimax.py exp2 log     those whose names begin so

Coefficients are rounded to the type one by one, and the others fitted anew after each, so that a rounded
coefficient costs little accuracy. The error that is printed is that of the rounded polynomial, without the rounding
errors of its evaluation; docs/accuracy.md has the measured errors of the functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
from mpmath import mpf

mp.mp.dps = 120

Real = Callable[[mpf], mpf]
LOG2 = mp.log(2)


@dataclass
class Fit:
    """sum of c[k] t^k near f(t) on [low, high], such that the greatest weight(t) * |error| is least."""

    name: str
    f: Real
    low: mpf
    high: mpf
    terms: int
    bits: int = 24  # of the coefficients
    weight: Real = lambda t: mpf(1)
    fixed: Sequence[float] = ()  # the first coefficients, given
    refits: int = 4  # so many of the others are rounded one by one
    points: int = 0  # of the grid; 0: chosen from the number of terms


def rounded(x: mpf, bits: int) -> mpf:
    mantissa, exponent = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)


def errors(t: list[mpf], f: list[mpf], w: list[mpf], c: list[mpf]) -> list[mpf]:
    return [weight * (value - mp.polyval(c[::-1], x)) for x, value, weight in zip(t, f, w, strict=True)]


def levelled(t: list[mpf], f: list[mpf], w: list[mpf], chosen: list[int], terms: int) -> tuple[list[mpf], mpf]:
    """The polynomial whose errors at the chosen points are equal and alternate in sign, and that error."""
    matrix, right = mp.matrix(terms + 1, terms + 1), mp.matrix(terms + 1, 1)
    for row, j in enumerate(chosen):
        for k in range(terms):
            matrix[row, k] = t[j] ** k
        matrix[row, terms] = (-1) ** row / w[j]
        right[row] = f[j]
    solution = mp.lu_solve(matrix, right)
    return [solution[k] for k in range(terms)], abs(solution[terms])


def extrema(e: list[mpf], wanted: int) -> list[int]:
    """Points of greatest error, alternating in sign; surplus ones are dropped, the smallest errors first."""
    found: list[int] = []
    for j, error in enumerate(e):
        if error == 0:
            continue
        if not found or (error > 0) != (e[found[-1]] > 0):
            found.append(j)
        elif abs(error) > abs(e[found[-1]]):
            found[-1] = j
    while len(found) > wanted:
        size = [abs(e[j]) for j in found]
        least = size.index(min(size))
        if len(found) == wanted + 1:
            found.pop(0 if size[0] < size[-1] else -1)
        elif least in (0, len(found) - 1):
            found.pop(least)
        else:  # with its smaller neighbour, to keep the alternation
            first = least - 1 if size[least - 1] < size[least + 1] else least
            del found[first : first + 2]
    return found


def remez(t: list[mpf], f: list[mpf], w: list[mpf], terms: int) -> list[mpf]:
    chosen = sorted({round((len(t) - 1) * i / terms) for i in range(terms + 1)})
    for _ in range(60):
        c, level = levelled(t, f, w, chosen, terms)
        e = errors(t, f, w, c)
        if max(abs(v) for v in e) <= level * 1.01:
            return c
        chosen = extrema(e, terms + 1)
    raise ArithmeticError(f"remez: no convergence with {terms} terms")


def solve(fit: Fit) -> tuple[list[mpf], mpf]:
    """The rounded coefficients and the greatest weighted error."""
    points = fit.points or 30 * fit.terms + 200
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    t = [middle - half * mp.cos(mp.pi * (i + mpf(1) / 2) / points) for i in range(points)]
    f = [fit.f(x) for x in t]
    w = [abs(fit.weight(x)) for x in t]
    target, weight = f, w
    done: list[mpf] = []
    while len(done) < fit.terms:
        if len(done) < len(fit.fixed):
            done.append(mpf(fit.fixed[len(done)]))
        else:
            c = remez(t, f, w, fit.terms - len(done))
            last = len(done) - len(fit.fixed) >= fit.refits
            done += [rounded(v, fit.bits) for v in (c if last else c[:1])]
        # What is left is t times a polynomial of one degree less.
        f = [(value - done[-1]) / x for x, value in zip(t, f, strict=True)]
        w = [v * abs(x) for x, v in zip(t, w, strict=True)]
    return done, max(abs(v) for v in errors(t, target, weight, done))


def relative(f: Real) -> Real:
    return lambda t: 1 / f(t)


def odd_rest(f: Real) -> tuple[Real, Real]:
    """f(t) = t + t s p(s) with s = t^2: p, and its weight for relative errors of f."""
    return (
        lambda s: (f(mp.sqrt(s)) / mp.sqrt(s) - 1) / s,
        lambda s: s * mp.sqrt(s) / f(mp.sqrt(s)),
    )


def power_fit(name: str, base: mpf, terms: int, bits: int, refits: int) -> Fit:
    half = LOG2 / mp.log(base) * mpf("1.0001")
    return Fit(name, lambda r: base**r, -half, half, terms, bits, lambda r: base**-r, (1,), refits)


def expm1_fit(name: str, low: float, high: float, terms: int, bits: int, refits: int) -> Fit:
    """exp(r) - 1 = r + r^2 p(r), between `low` and `high` times log(2)."""
    return Fit(
        name,
        lambda r: (mp.expm1(r) - r) / r**2,
        LOG2 * mpf(low),
        LOG2 * mpf(high),
        terms,
        bits,
        lambda r: r * r / mp.expm1(r),
        (),
        refits,
    )


def log_fit(name: str, scale: mpf, terms: int) -> Fit:
    """log_b(1 + f) = f log_b(e) + f^2 p(f)."""
    third = mpf(1) / 3
    return Fit(
        name,
        lambda f: scale * (mp.log1p(f) - f) / f**2,
        -third,
        third,
        terms,
        24,
        lambda f: f * f / mp.log1p(f) / scale,
    )


def atanh_ratio(z: mpf) -> mpf:
    """2 atanh(s) / s with z = s^2."""
    return 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z)


def erf_ratio(s: mpf) -> mpf:
    return mp.erf(mp.sqrt(s)) / mp.sqrt(s)


def erf_large_fit(name: str, centre: str, low: str, high: str, terms: int, bits: int) -> Fit:
    """The fourth root of erfc(a) in v = a - centre, as good as 1 - root^4 = erf(a) needs it.

    Better at the upper end, where 1 - root^4 has to round to 1.
    """
    c = mpf(float.fromhex(centre))

    def root(v: mpf) -> mpf:
        return mp.root(mp.erfc(v + c), 4)

    floor = 16 * root(mpf(high) - c) ** 3

    def weight(v: mpf) -> mpf:
        return max(4 * root(v) ** 3 / mp.erf(v + c), floor)

    return Fit(name, root, mpf(low) - c, mpf(high) - c, terms, bits, weight, refits=terms)


def erfc_fit(name: str, k: int, high: str, terms: int) -> Fit:
    """(1 + 2 a) exp(a^2) erfc(a) in q = (a - k) / (a + k)."""

    def scaled(q: mpf) -> mpf:
        a = k * (1 + q) / (1 - q)
        return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)

    top = mpf(high)
    return Fit(name, scaled, mpf(-1), (top - k) / (top + k), terms, 53, relative(scaled), (), 3)


def fits() -> list[Fit]:
    quarter = (mp.pi / 4 * mpf("1.001")) ** 2
    z_max = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.001")
    sin, sin_weight = odd_rest(mp.sin)
    asin, asin_weight = odd_rest(mp.asin)
    atan, atan_weight = odd_rest(mp.atan)
    tiny = mpf("1e-12")

    def cos(s: mpf) -> mpf:
        return (mp.cos(mp.sqrt(s)) - 1) / s

    def cos_weight(s: mpf) -> mpf:
        return s / mp.cos(mp.sqrt(s))

    return [
        power_fit("exp float32", mp.e, 8, 24, 4),
        power_fit("exp float64", mp.e, 14, 53, 4),
        power_fit("exp2 float32", mpf(2), 8, 24, 3),
        power_fit("exp2 float64", mpf(2), 14, 53, 3),
        power_fit("exp10 float32", mpf(10), 9, 24, 4),
        power_fit("exp10 float64", mpf(10), 14, 53, 4),
        Fit(
            "exp2_moderate", lambda r: mpf(2) ** r, mpf("-0.501"), mpf("0.501"), 7, 53, lambda r: mpf(2) ** -r, (1,), 1
        ),
        expm1_fit("expm1_symmetric float32", -0.5005, 0.5005, 5, 24, 3),
        expm1_fit("expm1_symmetric float64", -0.5005, 0.5005, 11, 53, 3),
        expm1_fit("expm1_mostly_positive float32", -0.105, 0.905, 6, 24, 4),
        expm1_fit("expm1_mostly_positive float64", -0.105, 0.905, 11, 53, 4),
        log_fit("log float32", mpf(1), 8),
        log_fit("log2 float32", 1 / LOG2, 9),
        log_fit("log10 float32", 1 / mp.log(10), 9),
        Fit("log float64", lambda z: (atanh_ratio(z) - 2) / z, tiny, z_max, 7, 53, lambda z: z / 2, (), 2),
        Fit("log2_moderate", lambda z: atanh_ratio(z) / LOG2, tiny, z_max, 5, 53, refits=1),
        Fit(
            "log2_wide",
            lambda z: ((atanh_ratio(z) - 2) / z - mpf(2) / 3) / z,
            tiny,
            z_max,
            8,
            53,
            lambda z: z * z / 2,
            (),
            2,
        ),
        Fit("sin float32", sin, tiny, quarter, 4, 24, sin_weight),
        Fit("cos float32", cos, tiny, quarter, 4, 24, cos_weight),
        Fit("sin float64", sin, tiny, quarter, 6, 53, sin_weight, refits=6),
        Fit("cos float64", cos, tiny, quarter, 7, 53, cos_weight, refits=7),
        Fit("asin float32", asin, tiny, mpf("0.2501"), 5, 24, asin_weight),
        Fit("asin float64", asin, tiny, mpf("0.2501"), 13, 53, asin_weight),
        Fit("atan float32", atan, tiny, mpf("1.0001"), 8, 24, atan_weight),
        Fit("atan float64", atan, tiny, mpf("1.0001"), 21, 53, atan_weight),
        Fit("atan_reduced_moderate", atan, tiny, mpf("1.0001"), 10, 53, atan_weight),
        Fit("cbrt", mp.cbrt, mpf(1), mpf(8), 5, 24, relative(mp.cbrt), (), 0),
        Fit("erf float32, small", lambda s: erf_ratio(s) - 1, tiny, mpf(1), 6, 24, relative(erf_ratio), refits=6),
        Fit("erf float64, small", lambda s: erf_ratio(s) - 1, tiny, mpf(1), 12, 53, relative(erf_ratio)),
        erf_large_fit("erf float32, large", "0x1p+0", "0.95", "4.1", 8, 24),
        erf_large_fit("erf float64, large", "0x1p+0", "1", "6", 20, 53),
        erfc_fit("erfc float32", 2, "10.2", 12),
        erfc_fit("erfc float64", 4, "27.4", 22),
    ]


def main(names: list[str]) -> None:
    for fit in fits():
        if names and not any(fit.name.startswith(name) for name in names):
            continue
        c, error = solve(fit)
        digits = 9 if fit.bits == 24 else 17
        print(f"{fit.name}: error 2^{float(mp.log(error, 2)):.1f}")
        print("    " + ", ".join(f"{float(v):.{digits}g}" for v in c), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
