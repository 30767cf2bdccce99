// Algorithm AS 241: one rational function around the median, others of sqrt(-log p) in the tails.
// See normal_quantile.h.
#include "ops/normal_quantile.h"

#include <span>
#include <vector>

namespace topstitch::ops {

using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

struct Rational {
    std::vector<double> numerator, denominator;  // from the constant upwards
};

struct Coefficients {
    Rational center;  // of 0.425^2 - above^2
    Rational middle;  // of sqrt(-log p) - 1.6
    Rational far;     // of sqrt(-log p) - 5; empty: not needed
};

const Coefficients& ppnd7() {
    static const Coefficients table{
        {{3.3871327179, 5.0434271938e1, 1.5929113202e2, 5.9109374720e1},
         {1.0, 1.7895169469e1, 7.8757757664e1, 6.7187563600e1}},
        {{1.4234372777, 2.7568153900, 1.3067284816, 1.7023821103e-1}, {1.0, 7.3700164250e-1, 1.2021132975e-1}},
        {}};
    return table;
}

const Coefficients& ppnd16() {
    static const Coefficients table{
        {{3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
          4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3},
         {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
          3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3}},
        {{1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
          1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
         {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
          1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}},
        {{6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
          2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
         {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
          7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
          2.04426310338993978564e-15}}};
    return table;
}

ValueId number(Builder& b, double value, ValueId like) {
    return b.constant(value, b.type(like));
}

ValueId polynomial(Builder& b, std::span<const double> coefficients, ValueId x) {
    ValueId sum = number(b, coefficients.back(), x);
    for (std::size_t k = coefficients.size() - 1; k-- > 0;)
        sum = b.op(ScalarOp::fma, sum, x, number(b, coefficients[k], x));
    return sum;
}

struct Fraction {
    ValueId numerator, denominator;
};

Fraction fraction(Builder& b, const Rational& rational, ValueId x) {
    return {polynomial(b, rational.numerator, x), polynomial(b, rational.denominator, x)};
}

Fraction select(Builder& b, ValueId predicate, const Fraction& yes, const Fraction& no) {
    return {b.select(predicate, yes.numerator, no.numerator), b.select(predicate, yes.denominator, no.denominator)};
}

}  // namespace

ValueId normal_quantile(Builder& b, ValueId p, ValueId above) {
    const Coefficients& table = b.type(p) == DType::float64 ? ppnd16() : ppnd7();
    constexpr double center_width = 0.425;
    // A fused multiply-add is asked for, so that every back end rounds alike.
    const ValueId squared =
        b.op(ScalarOp::fma, b.op(ScalarOp::neg, above), above, number(b, center_width * center_width, above));
    Fraction center = fraction(b, table.center, squared);
    center.numerator = b.mul(center.numerator, above);

    const ValueId r = b.op(ScalarOp::sqrt, b.op(ScalarOp::neg, b.op(ScalarOp::log, p)));
    Fraction tail = fraction(b, table.middle, b.sub(r, number(b, 1.6, r)));
    if (!table.far.numerator.empty()) {
        const ValueId five = number(b, 5.0, r);
        tail = select(b, b.op(ScalarOp::le, r, five), tail, fraction(b, table.far, b.sub(r, five)));
    }
    const ValueId near = b.op(ScalarOp::le, above, number(b, center_width, above));
    const Fraction chosen = select(b, near, center, tail);
    return b.div(chosen.numerator, chosen.denominator);
}

}  // namespace topstitch::ops
