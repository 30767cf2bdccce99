// Complex arithmetic and functions built from real scalar instructions.
// The quotient is R. L. Smith's (CACM 5(8), 1962, algorithm 116).
#include "ops/complex_math.h"

#include <cmath>
#include <limits>

namespace topstitch::ops {

using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

ValueId number(Builder& b, double value, ValueId like) {
    return b.constant(value, b.type(like));
}

ValueId is_infinite(Builder& b, ValueId x) {
    return b.op(ScalarOp::eq, b.op(ScalarOp::abs, x), number(b, infinity, x));
}

// The larger and the smaller magnitude of two numbers, and their quotient: 1 when they are equal, also for 0 / 0
// and inf / inf.
struct Magnitudes {
    ValueId large, small, ratio;
};

Magnitudes magnitudes(Builder& b, ValueId x, ValueId y) {
    const ValueId ax = b.op(ScalarOp::abs, x);
    const ValueId ay = b.op(ScalarOp::abs, y);
    const ValueId large = b.op(ScalarOp::max, ax, ay);
    const ValueId small = b.op(ScalarOp::min, ax, ay);
    const ValueId equal = b.op(ScalarOp::eq, large, small);
    return {large, small, b.select(equal, number(b, 1.0, large), b.div(small, large))};
}

struct Halved {
    Value z;
    ValueId factor;  // 0.5 or 1
};

Halved halved_if_large(Builder& b, const Value& z) {
    const ValueId one = number(b, 1.0, z.re);
    const ValueId size = b.op(ScalarOp::max, b.op(ScalarOp::abs, z.re), b.op(ScalarOp::abs, z.im));
    const ValueId factor = b.select(b.op(ScalarOp::lt, one, size), number(b, 0.5, z.re), one);
    return {{b.mul(z.re, factor), b.mul(z.im, factor)}, factor};
}

}  // namespace

ValueId scalar_hypot(Builder& b, ValueId x, ValueId y) {
    const Magnitudes m = magnitudes(b, x, y);
    const ValueId one = number(b, 1.0, m.ratio);
    const ValueId length = b.mul(m.large, b.op(ScalarOp::sqrt, b.add(one, b.mul(m.ratio, m.ratio))));
    const ValueId infinite = b.op(ScalarOp::bit_or, is_infinite(b, x), is_infinite(b, y));
    return b.select(infinite, number(b, infinity, x), length);
}

Value complex_mul(Builder& b, const Value& x, const Value& y) {
    return {b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im)), b.add(b.mul(x.re, y.im), b.mul(x.im, y.re))};
}

Value complex_square(Builder& b, const Value& z) {
    // (re - im) * (re + im) keeps the digits that re*re - im*im would cancel.
    const ValueId cross = b.mul(z.re, z.im);
    return {b.mul(b.sub(z.re, z.im), b.add(z.re, z.im)), b.add(cross, cross)};
}

Value complex_div(Builder& b, const Value& x, const Value& y) {
    // A part above 1 may be near the limit, where the sums below overflow though the quotient does not: halve it.
    const Halved p = halved_if_large(b, x);
    const Halved q = halved_if_large(b, y);
    const ValueId zero = number(b, 0.0, y.re);
    const ValueId im_smaller = b.op(ScalarOp::le, b.op(ScalarOp::abs, q.z.im), b.op(ScalarOp::abs, q.z.re));
    const ValueId large = b.select(im_smaller, q.z.re, q.z.im);
    const ValueId small = b.select(im_smaller, q.z.im, q.z.re);
    const ValueId ratio = b.div(small, large);
    // With ratio = im / re: (re + im*r, im - re*r) / d; otherwise (re*r + im, im*r - re) / d.
    const ValueId re_scaled = b.mul(p.z.re, ratio);
    const ValueId im_scaled = b.mul(p.z.im, ratio);
    ValueId re = b.select(im_smaller, b.add(p.z.re, im_scaled), b.add(re_scaled, p.z.im));
    ValueId im = b.select(im_smaller, b.sub(p.z.im, re_scaled), b.sub(im_scaled, p.z.re));
    ValueId denominator = b.add(large, b.mul(small, ratio));
    // A zero divisor leaves x / 0 in each part, as NumPy has it.
    const ValueId by_zero = b.op(ScalarOp::eq, large, zero);
    re = b.select(by_zero, p.z.re, re);
    im = b.select(by_zero, p.z.im, im);
    denominator = b.select(by_zero, b.op(ScalarOp::abs, large), denominator);
    const ValueId unscale = b.div(q.factor, p.factor);  // a power of 2
    return {b.mul(b.div(re, denominator), unscale), b.mul(b.div(im, denominator), unscale)};
}

Value complex_exp(Builder& b, const Value& z) {
    // exp(re) overflows from 88.7 on although exp(re) * cos(im) need not: there the factor exp(60) comes last.
    const ValueId one = number(b, 1.0, z.re);
    const ValueId zero = number(b, 0.0, z.re);
    const ValueId large = b.op(ScalarOp::lt, number(b, 80.0, z.re), z.re);
    const ValueId shift = b.select(large, number(b, 60.0, z.re), zero);
    const ValueId factor = b.select(large, number(b, std::exp(60.0), z.re), one);
    const ValueId modulus = b.op(ScalarOp::exp, b.sub(z.re, shift));
    const ValueId re = b.mul(b.mul(modulus, b.op(ScalarOp::cos, z.im)), factor);
    const ValueId im = b.mul(b.mul(modulus, b.op(ScalarOp::sin, z.im)), factor);
    // Annex G: exp(x + 0i) is real, and exp(-inf + iy) is zero whatever y is.
    const ValueId real = b.op(ScalarOp::eq, z.im, zero);
    const ValueId vanishes = b.op(ScalarOp::eq, z.re, number(b, -infinity, z.re));
    return {b.select(vanishes, zero, b.select(real, b.mul(modulus, factor), re)),
            b.select(real, z.im, b.select(vanishes, zero, im))};
}

Value complex_log(Builder& b, const Value& z) {
    const Magnitudes m = magnitudes(b, z.re, z.im);
    const ValueId one = number(b, 1.0, m.large);
    const ValueId half = number(b, 0.5, m.large);
    // log |z| = log(large) + log1p(ratio^2) / 2; near |z| = 1, where that cancels, log1p(|z|^2 - 1) / 2.
    const ValueId far =
        b.add(b.op(ScalarOp::log, m.large), b.mul(half, b.op(ScalarOp::log1p, b.mul(m.ratio, m.ratio))));
    const ValueId excess = b.op(ScalarOp::fma, b.sub(m.large, one), b.add(m.large, one), b.mul(m.small, m.small));
    const ValueId close = b.mul(half, b.op(ScalarOp::log1p, excess));
    const ValueId near_one = b.op(ScalarOp::lt, b.op(ScalarOp::abs, excess), half);
    const ValueId infinite = b.op(ScalarOp::bit_or, is_infinite(b, z.re), is_infinite(b, z.im));
    const ValueId re = b.select(infinite, number(b, infinity, z.re), b.select(near_one, close, far));
    return {re, b.op(ScalarOp::atan2, z.im, z.re)};
}

Value complex_sqrt(Builder& b, const Value& z) {
    // t = sqrt((|re| + |z|) / 2); the root is (t, im / 2t), or (|im| / 2t, +-t) left of the imaginary axis. The
    // argument is scaled by a power of 2 so that neither the sum overflows nor a tiny |z| loses bits.
    const ValueId zero = number(b, 0.0, z.re);
    const ValueId ax = b.op(ScalarOp::abs, z.re);
    const ValueId ay = b.op(ScalarOp::abs, z.im);
    const ValueId small = b.op(ScalarOp::le, b.op(ScalarOp::max, ax, ay), number(b, 1.0, z.re));
    const ValueId scale = b.select(small, number(b, 0x1p23, z.re), number(b, 0.125, z.re));
    const ValueId unscale = b.select(small, number(b, 0x1p-12, z.re), number(b, 2.0, z.re));
    const ValueId scaled_x = b.mul(ax, scale);
    const ValueId length = scalar_hypot(b, scaled_x, b.mul(ay, scale));
    const ValueId t = b.mul(b.op(ScalarOp::sqrt, b.add(scaled_x, length)), unscale);
    const ValueId other = b.div(ay, b.add(t, t));

    const ValueId right = b.op(ScalarOp::le, zero, z.re);
    const ValueId re = b.select(right, t, other);
    const ValueId im = b.op(ScalarOp::copysign, b.select(right, other, t), z.im);
    // Annex G: sqrt(x +- inf i) is (inf, +-inf) for every x; sqrt(+-0 + 0i) is 0.
    const ValueId infinite = is_infinite(b, z.im);
    const ValueId is_zero = b.op(ScalarOp::bit_and, b.op(ScalarOp::eq, z.re, zero), b.op(ScalarOp::eq, z.im, zero));
    return {b.select(infinite, number(b, infinity, z.re), b.select(is_zero, zero, re)),
            b.select(b.op(ScalarOp::bit_or, infinite, is_zero), z.im, im)};
}

Value complex_sin(Builder& b, const Value& z) {
    const ValueId zero = number(b, 0.0, z.re);
    const ValueId re = b.mul(b.op(ScalarOp::sin, z.re), b.op(ScalarOp::cosh, z.im));
    const ValueId im = b.mul(b.op(ScalarOp::cos, z.re), b.op(ScalarOp::sinh, z.im));
    // On the axes the zero stays a zero, even next to an infinite factor.
    return {b.select(b.op(ScalarOp::eq, z.re, zero), z.re, re), b.select(b.op(ScalarOp::eq, z.im, zero), z.im, im)};
}

Value complex_cos(Builder& b, const Value& z) {
    const ValueId zero = number(b, 0.0, z.re);
    const ValueId re = b.mul(b.op(ScalarOp::cos, z.re), b.op(ScalarOp::cosh, z.im));
    const ValueId im = b.op(ScalarOp::neg, b.mul(b.op(ScalarOp::sin, z.re), b.op(ScalarOp::sinh, z.im)));
    const ValueId on_axis = b.op(ScalarOp::bit_or, b.op(ScalarOp::eq, z.re, zero), b.op(ScalarOp::eq, z.im, zero));
    // cos is even: on an axis the imaginary part is a zero with the opposite sign of re * im.
    const ValueId sign = b.op(ScalarOp::neg, b.mul(b.op(ScalarOp::copysign, number(b, 1.0, z.re), z.re),
                                                   b.op(ScalarOp::copysign, number(b, 1.0, z.im), z.im)));
    return {re, b.select(on_axis, b.op(ScalarOp::copysign, zero, sign), im)};
}

}  // namespace topstitch::ops
