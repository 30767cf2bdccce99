// The distributions: how the words of a random stream become numbers.
// random.cpp declares the operations around them.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/scalar_convert.h"
#include "ops/elementwise.h"
#include "ops/families.h"
#include "ops/normal_quantile.h"
#include "ops/random_rules.h"

namespace topstitch::ops {

using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

ValueId number64(ElementContext& c, std::uint64_t value) {
    return c.b.constant_int(static_cast<std::int64_t>(value), DType::uint64);
}

ValueId shifted_right(ElementContext& c, ValueId word, int bits) {
    return c.b.op(ScalarOp::shr, word, number64(c, static_cast<std::uint64_t>(bits)));
}

// A whole number below 2^63 as a float: from a signed integer, as processors convert those.
ValueId as_float(ElementContext& c, ValueId word, DType type) {
    const DType narrow = type == DType::float32 ? DType::int32 : DType::int64;
    return c.b.cast(c.b.cast(word, narrow), type);
}

// --- Values of a dtype, on the host.

double rounded(double value, DType dtype) {
    std::array<std::byte, 8> memory{};
    store_scalar(value, dtype, memory.data());
    return load_scalar(memory.data(), dtype);
}

// The largest value of a floating-point dtype below `value`, which is one itself.
double previous(double value, DType dtype) {
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    if (dtype == DType::float64) return std::nextafter(value, lowest);
    if (dtype == DType::float32) return std::nextafterf(static_cast<float>(value), static_cast<float>(lowest));
    std::uint16_t bits = 0;
    store_scalar(value, dtype, &bits);
    constexpr std::uint16_t sign = 0x8000;
    if ((bits & ~sign) == 0) {
        bits = sign | 1;  // below zero
    } else {
        bits = static_cast<std::uint16_t>((bits & sign) != 0 ? bits + 1 : bits - 1);
    }
    return load_scalar(&bits, dtype);
}

// The values of a dtype in [minimum, maximum).
struct Range {
    double first, last;
    bool empty() const { return !(first <= last); }
};

Range range_of(double minimum, double maximum, DType dtype) {
    double last = rounded(maximum, dtype);
    if (last >= maximum) last = previous(last, dtype);
    double first = rounded(minimum, dtype);
    if (first < minimum) first = -previous(-first, dtype);
    return {first, last};
}

void require_finite(const OpView& view, const char* name) {
    const double value = view.real(name);
    const DType dtype = view.dtype("dtype");
    if (std::isfinite(value) && std::isfinite(rounded(value, dtype))) return;
    view.fail(concat(name, " is ", value, ", but must be a finite number of ", name_of(dtype)));
}

void check_range(const OpView& view) {
    require_finite(view, "minimum");
    require_finite(view, "maximum");
    const double minimum = view.real("minimum");
    const double maximum = view.real("maximum");
    if (!(minimum < maximum)) {
        view.fail(concat("minimum is ", minimum, " and maximum ", maximum, ", but the minimum must be less"));
    }
    if (range_of(minimum, maximum, view.dtype("dtype")).empty()) {
        view.fail(concat("no ", name_of(view.dtype("dtype")), " lies in [", minimum, ", ", maximum,
                         "); choose a wider range or dtype"));
    }
}

// `value` as it will be stored, in [minimum, maximum): rounding must not bring it to the maximum.
ValueId in_range(ElementContext& c, ValueId value) {
    const DType dtype = c.op.output().dtype;
    const Range range = range_of(c.op.real("minimum"), c.op.real("maximum"), dtype);
    if (is_half(dtype)) value = c.b.round_to(value, dtype);
    const ValueId below = c.b.op(ScalarOp::min, value, number(c, range.last, value));
    return c.b.op(ScalarOp::max, below, number(c, range.first, value));
}

// --- Uniform.

// In [0, 1), a multiple of 2^-24, or 2^-53 in float64.
ValueId unit_uniform(ElementContext& c, const RandomWords& words, DType type) {
    const bool wide = type == DType::float64;
    const ValueId bits = joined_words(c, words, wide ? 2 : 1);
    const ValueId whole = as_float(c, shifted_right(c, bits, wide ? 11 : 8), type);
    return c.b.mul(whole, number(c, wide ? 0x1p-53 : 0x1p-24, whole));
}

Value uniform(ElementContext& c, const RandomWords& words) {
    const double minimum = c.op.real("minimum");
    const double maximum = c.op.real("maximum");
    const DType dtype = c.op.output().dtype;
    const ValueId unit = unit_uniform(c, words, compute_type(dtype));
    if (minimum == 0.0 && maximum == 1.0 && !is_half(dtype)) return Value{unit};
    const ValueId low = number(c, minimum, unit);
    const double width = maximum - minimum;
    if (std::isfinite(rounded(width, compute_type(dtype)))) {
        return Value{in_range(c, c.b.op(ScalarOp::fma, unit, number(c, width, unit), low))};
    }
    const ValueId rest = c.b.op(ScalarOp::fma, c.b.op(ScalarOp::neg, unit), low, low);
    return Value{in_range(c, c.b.op(ScalarOp::fma, unit, number(c, maximum, unit), rest))};
}

Distribution uniform_distribution() {
    Distribution d;
    d.name = "random_uniform";
    d.doc =
        "Floats that are uniform in [minimum, maximum): minimum + (maximum - minimum) * u, where u is a multiple of "
        "2^-24 (float64: 2^-53) in [0, 1). Never the maximum: what rounding would bring there is the largest number "
        "below it.";
    d.attributes = {real_attr("minimum", 0.0, "the smallest value"), real_attr("maximum", 1.0, "above all values")};
    d.check = check_range;
    d.words = words_for_dtype;
    d.element = uniform;
    d.mpsgraph = {"randomUniformTensorWithShape", "randomTensorWithShape:descriptor:"};
    d.onnx = "RandomUniform";
    d.onnx_like = "RandomUniformLike";
    return d;
}

// --- Normal.

// A probability in (0, 0.5) and 0.5 minus it, both precise near 0, and a sign.
struct HalfProbability {
    ValueId p, above, negative;
};

HalfProbability half_probability(ElementContext& c, const RandomWords& words, DType type) {
    const bool wide = type == DType::float64;
    const ValueId bits = joined_words(c, words, wide ? 2 : 1);
    const ValueId whole = shifted_right(c, bits, wide ? 11 : 1);
    const ValueId largest = number64(c, wide ? (std::uint64_t{1} << 53) - 1 : (std::uint64_t{1} << 31) - 1);
    const auto centered = [&](ValueId integer) {
        const ValueId value = as_float(c, integer, type);
        const double scale = wide ? 0x1p-54 : 0x1p-32;
        return c.b.mul(c.b.add(value, number(c, 0.5, value)), number(c, scale, value));
    };
    const ValueId odd = c.b.op(ScalarOp::bit_and, bits, number64(c, 1));
    return {centered(whole), centered(c.b.sub(largest, whole)), c.b.op(ScalarOp::ne, odd, number64(c, 0))};
}

ValueId standard_normal_by_quantile(ElementContext& c, const RandomWords& words, DType type) {
    const HalfProbability half = half_probability(c, words, type);
    const ValueId distance = normal_quantile(c.b, half.p, half.above);
    return c.b.select(half.negative, c.b.op(ScalarOp::neg, distance), distance);
}

// Two elements share a radius and an angle (G. E. P. Box and M. E. Muller, 1958): one is the cosine, one the sine.
ValueId standard_normal_by_box_muller(ElementContext& c, const RandomWords& words, DType type) {
    Builder& b = c.b;
    const bool wide = type == DType::float64;
    ValueId first = words.block_word(0);
    ValueId second = words.block_word(1);
    ValueId is_sine = words.part_is(1);
    if (wide) {
        const auto joined = [&](int k) {
            return b.op(ScalarOp::bit_or, words.block_word(k),
                        b.op(ScalarOp::shl, words.block_word(k + 1), number64(c, 32)));
        };
        first = joined(0);
        second = joined(2);
    } else {
        const ValueId upper = b.op(ScalarOp::bit_or, words.part_is(2), words.part_is(3));
        first = b.select(upper, words.block_word(2), first);
        second = b.select(upper, words.block_word(3), second);
        is_sine = b.op(ScalarOp::bit_or, is_sine, words.part_is(3));
    }
    // (k + 0.5) / 2^n lies in (0, 1], and is precise where the logarithm is large.
    const ValueId whole = shifted_right(c, first, wide ? 11 : 1);
    const ValueId fraction = as_float(c, whole, type);
    const ValueId u = b.mul(b.add(fraction, number(c, 0.5, fraction)), number(c, wide ? 0x1p-53 : 0x1p-31, fraction));
    const ValueId radius = b.op(ScalarOp::sqrt, b.mul(number(c, -2.0, u), b.op(ScalarOp::log, u)));
    const ValueId turn = as_float(c, shifted_right(c, second, wide ? 11 : 8), type);
    const double step = 2.0 * std::numbers::pi * (wide ? 0x1p-53 : 0x1p-24);
    const ValueId angle = b.mul(turn, number(c, step, turn));
    return b.mul(radius, b.select(is_sine, b.op(ScalarOp::sin, angle), b.op(ScalarOp::cos, angle)));
}

void check_normal(const OpView& view) {
    require_finite(view, "mean");
    require_finite(view, "standard_deviation");
    if (view.real("standard_deviation") < 0.0) {
        view.fail(concat("standard_deviation is ", view.real("standard_deviation"), ", but must not be negative"));
    }
}

ValueId scaled_normal(ElementContext& c, ValueId z) {
    const ValueId deviation = number(c, c.op.real("standard_deviation"), z);
    return c.b.op(ScalarOp::fma, z, deviation, number(c, c.op.real("mean"), z));
}

Distribution normal_distribution() {
    Distribution d;
    d.name = "random_normal";
    d.doc =
        "Floats of the normal distribution. By the inverse of its cumulative function (M. J. Wichura, Algorithm AS "
        "241, 1988), one word for each number (float64: two), or by the method of Box and Muller. float32 reaches 6.3 "
        "standard deviations, float64 8.2. 16-bit floats are computed in float32.";
    d.attributes = {real_attr("mean", 0.0, "the expected value"),
                    real_attr("standard_deviation", 1.0, "its width; not negative"),
                    choice_attr("method", "inverse_cdf", {"inverse_cdf", "box_muller"}, "how words become numbers")};
    d.check = check_normal;
    d.words = words_for_dtype;
    d.element = [](ElementContext& c, const RandomWords& words) {
        const DType type = compute_type(c.op.output().dtype);
        const bool quantile = c.op.string("method") == "inverse_cdf";
        return Value{scaled_normal(
            c, quantile ? standard_normal_by_quantile(c, words, type) : standard_normal_by_box_muller(c, words, type))};
    };
    d.mpsgraph = {"randomTensorWithShape:descriptor:"};
    d.onnx = "RandomNormal";
    d.onnx_like = "RandomNormalLike";
    return d;
}

// --- Normal, truncated.

double cumulative_normal(double z) {
    return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

// The part of the cumulative function between the limits; mirrored when both lie above the mean, where the function is
// too near to 1 to be precise.
struct TruncatedPart {
    double low, high;
    bool mirrored;
};

TruncatedPart truncated_part(const OpView& view) {
    const auto standardized = [&view](const char* name) {
        return (view.real(name) - view.real("mean")) / view.real("standard_deviation");
    };
    double low = standardized("minimum");
    double high = standardized("maximum");
    const bool mirrored = low > 0.0;
    if (mirrored) low = -std::exchange(high, -low);
    return {cumulative_normal(low), cumulative_normal(high), mirrored};
}

void check_truncated(const OpView& view) {
    check_normal(view);
    check_range(view);
    if (view.real("standard_deviation") == 0.0) view.fail("standard_deviation is 0, but must be positive");
    const TruncatedPart part = truncated_part(view);
    if (part.low < part.high && part.high > 1e-290) return;
    view.fail(concat("[", view.real("minimum"), ", ", view.real("maximum"),
                     ") has no share of the distribution that can be told from 0: it lies too far from the mean, or "
                     "is too narrow"));
}

// In float64 whatever the dtype: tails need its range.
Value truncated_normal(ElementContext& c, const RandomWords& words) {
    Builder& b = c.b;
    const bool wide = c.op.output().dtype == DType::float64;
    const ValueId whole =
        as_float(c, wide ? shifted_right(c, joined_words(c, words, 2), 11) : words.word(0), DType::float64);
    const ValueId u = b.mul(b.add(whole, number(c, 0.5, whole)), number(c, wide ? 0x1p-53 : 0x1p-32, whole));
    const TruncatedPart part = truncated_part(c.op);
    const ValueId p = b.op(ScalarOp::fma, u, number(c, part.high - part.low, u), number(c, part.low, u));
    const ValueId half = number(c, 0.5, p);
    const ValueId is_lower = b.op(ScalarOp::le, p, half);
    const ValueId distance =
        normal_quantile(b, b.select(is_lower, p, b.sub(number(c, 1.0, p), p)), b.op(ScalarOp::abs, b.sub(half, p)));
    const ValueId negative = part.mirrored ? negated(c, is_lower) : is_lower;
    const ValueId z = b.select(negative, b.op(ScalarOp::neg, distance), distance);
    return Value{in_range(c, b.cast(scaled_normal(c, z), compute_type(c.op.output().dtype)))};
}

Distribution truncated_normal_distribution() {
    Distribution d;
    d.name = "random_truncated_normal";
    d.doc =
        "Floats of the normal distribution given that they lie in [minimum, maximum), by the inverse of its cumulative "
        "function in float64. Mean and standard deviation are those of the whole distribution. Never the maximum.";
    d.attributes = {real_attr("minimum", -2.0, "the smallest value"), real_attr("maximum", 2.0, "above all values"),
                    real_attr("mean", 0.0, "of the whole distribution"),
                    real_attr("standard_deviation", 1.0, "of the whole distribution; positive")};
    d.check = check_truncated;
    d.words = words_for_dtype;
    d.element = truncated_normal;
    d.mpsgraph = {"randomTensorWithShape:descriptor:"};
    return d;
}

// --- Bernoulli.

Value bernoulli(ElementContext& c, const RandomWords& words) {
    const DType dtype = c.op.output().dtype;
    const auto limit = static_cast<std::uint64_t>(std::ldexp(c.op.real("p"), 32) + 0.5);
    const ValueId hit = c.b.op(ScalarOp::lt, words.word(0), number64(c, limit));
    return Value{dtype == DType::boolean ? hit : c.b.cast(hit, compute_type(dtype))};
}

Distribution bernoulli_distribution() {
    Distribution d;
    d.name = "random_bernoulli";
    d.doc =
        "True with probability p (rounded to a multiple of 2^-32), independently for each element; 1 and 0 in other "
        "dtypes. 0 gives false always, and 1 true.";
    d.attributes = {real_attr("p", 0.5, "the probability of true, 0 to 1")};
    d.dtype = DType::boolean;
    d.allowed = bools | reals;
    d.check = [](const OpView& view) {
        const double p = view.real("p");
        if (!(p >= 0.0 && p <= 1.0)) view.fail(concat("p is ", p, ", but a probability is at least 0 and at most 1"));
    };
    d.words = [](const OpView&) { return 1; };
    d.element = bernoulli;
    d.onnx_like = "Bernoulli";
    return d;
}

// --- Integers.

// maximum - minimum + 1; 0 stands for 2^64.
std::uint64_t count_of_integers(const OpView& view) {
    return static_cast<std::uint64_t>(view.integer("maximum")) - static_cast<std::uint64_t>(view.integer("minimum")) +
           1;
}

bool fits_one_word(std::uint64_t count) {
    return count != 0 && count <= (std::uint64_t{1} << 32);
}

void check_integers(const OpView& view) {
    const std::int64_t minimum = view.integer("minimum");
    const std::int64_t maximum = view.integer("maximum");
    const DType dtype = view.dtype("dtype");
    if (minimum > maximum) {
        view.fail(concat("minimum is ", minimum, " and maximum ", maximum, ", but the minimum must not be greater"));
    }
    for (const auto& [name, value] : {std::pair("minimum", minimum), std::pair("maximum", maximum)}) {
        std::array<std::byte, 8> memory{};
        store_scalar(value, dtype, memory.data());
        const bool negative_unsigned = value < 0 && !is_signed_integer(dtype);
        if (size_of(dtype) < 8 ? load_scalar(memory.data(), dtype) == static_cast<double>(value) : !negative_unsigned)
            continue;
        view.fail(concat(name, " is ", value, ", which ", name_of(dtype), " does not hold; choose a wider dtype"));
    }
}

// floor(x * count / 2^n) for a number x of n random bits: each integer has the same share of the 2^n, up to one. Word
// by word, from the lowest: sum <- floor((word * count + sum) / 2^32), in which sum is always less than count.
ValueId scaled_to_count(ElementContext& c, const RandomWords& words, int num_words, std::uint64_t count) {
    Builder& b = c.b;
    const auto low = [&](ValueId x) { return b.op(ScalarOp::bit_and, x, number64(c, 0xFFFFFFFFu)); };
    const auto high = [&](ValueId x) { return shifted_right(c, x, 32); };
    const ValueId low_count = number64(c, count & 0xFFFFFFFFu);
    const ValueId high_count = number64(c, count >> 32);
    ValueId sum = number64(c, 0);
    for (int k = 0; k < num_words; ++k) {
        const ValueId word = words.word(k);
        const ValueId carried = high(b.add(b.mul(word, low_count), low(sum)));
        sum = b.add(b.add(b.mul(word, high_count), high(sum)), carried);
    }
    return sum;
}

Value integer(ElementContext& c, const RandomWords& words) {
    const std::uint64_t count = count_of_integers(c.op);
    const ValueId offset =
        count == 0 ? joined_words(c, words, 2) : scaled_to_count(c, words, fits_one_word(count) ? 2 : 4, count);
    const ValueId minimum = number64(c, static_cast<std::uint64_t>(c.op.integer("minimum")));
    return Value{c.b.cast(c.b.add(minimum, offset), c.op.output().dtype)};
}

Distribution integer_distribution() {
    Distribution d;
    d.name = "random_integer";
    d.doc =
        "Integers from minimum to maximum, both included (as in MPSGraph; NumPy's and PyTorch's upper ends are not). "
        "From 64 random bits for up to 2^32 different integers, else from 128, so that their probabilities differ by a "
        "part of 2^-32 at most.";
    d.attributes = {required_attr("minimum", AttributeKind::integer, "the smallest value"),
                    required_attr("maximum", AttributeKind::integer, "the largest value, which occurs too")};
    d.dtype = DType::int32;
    d.allowed = integers;
    d.check = check_integers;
    d.words = [](const OpView& view) {
        const std::uint64_t count = count_of_integers(view);
        return count == 0 || fits_one_word(count) ? 2 : 4;
    };
    d.element = integer;
    d.mpsgraph = {"randomTensorWithShape:descriptor:"};
    return d;
}

// --- Words.

Distribution bits_distribution() {
    Distribution d;
    d.name = "random_bits";
    d.doc =
        "Unsigned integers of random bits: the words of Philox 4x32-10 (J. K. Salmon et al., SC 2011), of which uint8 "
        "and uint16 take the low bits, and uint64 two, the low one first. Element e takes word e / 16 mod 4 of block e "
        "/ 64 * 16 + e mod 16 after the counter of the state (uint64: words 0 and 1, or 2 and 3, of block e / 32 * 16 "
        "+ e mod 16).";
    d.dtype = DType::uint32;
    d.allowed = integers;
    d.check = [](const OpView& view) {
        const DType dtype = view.dtype("dtype");
        if (is_signed_integer(dtype)) {
            view.fail_type(concat("dtype is ", name_of(dtype),
                                  ", but bits are unsigned: uint8, uint16, uint32 or "
                                  "uint64; use bitcast afterwards"));
        }
    };
    d.words = words_for_dtype;
    d.element = [](ElementContext& c, const RandomWords& words) {
        const DType dtype = c.op.output().dtype;
        return Value{c.b.cast(joined_words(c, words, dtype == DType::uint64 ? 2 : 1), dtype)};
    };
    return d;
}

}  // namespace

std::vector<OpDef> distribution_ops() {
    std::vector<OpDef> defs;
    for (const Distribution& distribution :
         {bits_distribution(), uniform_distribution(), normal_distribution(), truncated_normal_distribution(),
          bernoulli_distribution(), integer_distribution()}) {
        for (OpDef& def : draw_ops(distribution)) defs.push_back(std::move(def));
    }
    return defs;
}

}  // namespace topstitch::ops
