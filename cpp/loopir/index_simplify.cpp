// Quotients and remainders of index expressions, and their reunion when an index is put together again.
// What a reshape takes apart, its inverse finds whole: this is what makes views cost nothing.
#include <numeric>
#include <optional>

#include "loopir/index.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

bool is_number(const Dim& dim, std::int64_t value) {
    return dim.is_known() && dim.value() == value;
}

void check_divisor(const char* what, const Dim& divisor) {
    if (divisor.is_known() && divisor.value() < 0) {
        throw InternalError(
            concat(what, ": the divisor of an index is ", divisor.value(), "; it must not be negative"));
    }
}

// True when 0 <= index < limit for all values of its variables.
bool lies_below(const Index& index, const Dim& limit) {
    return provably_nonnegative(index.lower_bound()) && provably_nonnegative(limit - 1 - index.upper_bound());
}

// Is every part of `pattern` present in `index`, with just the same coefficient?
bool contains(const Index& index, const Index& pattern) {
    for (const Index::Part& wanted : pattern.parts()) {
        bool found = false;
        for (const Index::Part& part : index.parts()) {
            if (part.term == wanted.term) found = part.coefficient == wanted.coefficient;
        }
        if (!found) return false;
    }
    return true;
}

}  // namespace

struct IndexSimplifier {
    // index = divisor * quotient + rest
    struct Division {
        Index quotient;
        Index rest;
    };

    // index = factor * high + low, with low in [0, factor), and factor divides a divisor at hand
    struct Factored {
        Dim factor;
        Dim divisor;  // the divisor at hand, divided by factor
        Index high;
        Index low;
    };

    static Index term(IndexTerm::Kind kind, const Index& inner, const Dim& divisor) {
        IndexTerm term;
        term.kind = kind;
        term.inner = std::make_shared<const Index>(inner);
        term.extent = divisor;
        return Index::single(term);
    }

    struct SizeDivision {
        Dim quotient;
        Dim rest;
    };

    // Sizes divide as polynomials. A rest that is no number (n - 1, or -1 % n) would only get in the way.
    static SizeDivision divide_sizes(const Dim& size, const Dim& divisor) {
        if (Dim exact = exact_div(size, divisor); !exact.is_unknown()) return {exact, 0};
        const Dim rest = topstitch::mod(size, divisor);
        return rest.is_known() ? SizeDivision{topstitch::floor_div(size, divisor), rest} : SizeDivision{0, size};
    }

    // Takes out whatever the divisor divides, term by term.
    static Division divide(const Index& index, const Dim& divisor) {
        Division result;
        const SizeDivision constant = divide_sizes(index.constant_, divisor);
        result.quotient.constant_ = constant.quotient;
        result.rest.constant_ = constant.rest;
        for (const Index::Part& part : index.parts_) {
            const SizeDivision c = divide_coefficient(part.coefficient, divisor);
            result.quotient.add(c.quotient, part.term);
            result.rest.add(c.rest, part.term);
        }
        return result;
    }

    static SizeDivision divide_coefficient(const Dim& c, const Dim& divisor) {
        if (c.is_known() && divisor.is_known()) {
            // Rounded toward zero, so that a falling index keeps its small coefficient.
            return {c.value() / divisor.value(), c.value() % divisor.value()};
        }
        return divide_sizes(c, divisor);
    }

    static std::optional<Factored> factor_by(const Index& index, const Dim& factor, const Dim& divisor) {
        if (is_number(factor, 0) || is_number(factor, 1)) return std::nullopt;
        Dim remaining = exact_div(divisor, factor);
        if (remaining.is_unknown()) return std::nullopt;
        Division division = divide(index, factor);
        if (!lies_below(division.rest, factor)) return std::nullopt;
        return Factored{factor, remaining, division.quotient, division.rest};
    }

    // Tries the coefficients, and what they have in common, as factors.
    static std::optional<Factored> factor_out(const Index& index, const Dim& divisor) {
        std::int64_t common = divisor.is_known() ? divisor.value() : 0;
        for (const Index::Part& part : index.parts_) {
            const Dim& c = part.coefficient;
            common = c.is_known() ? std::gcd(common, c.value()) : 1;
            const Dim factor = provably_nonnegative(c) ? c : 0 - c;
            if (!provably_nonnegative(factor)) continue;
            if (auto result = factor_by(index, factor, divisor)) return result;
        }
        return divisor.is_known() ? factor_by(index, common, divisor) : std::nullopt;
    }

    static Index quotient_of(const Index& index, const Dim& divisor) {
        if (is_number(divisor, 1)) return index;
        const auto [quotient, rest] = divide(index, divisor);
        if (lies_below(rest, divisor)) return quotient;
        return quotient + quotient_of_rest(rest, divisor);
    }

    // Of what no part is divisible by the divisor, and whose quotient is not plainly zero.
    static Index quotient_of_rest(const Index& rest, const Dim& divisor) {
        if (auto factored = factor_out(rest, divisor)) return quotient_of(factored->high, factored->divisor);
        for (const Index::Part& part : rest.parts_) {
            if (part.term.kind != IndexTerm::Kind::floor_div || !is_number(part.coefficient, 1)) continue;
            // (e // a + f) // b == (e + a*f) // (a*b)
            const Index others = minus(rest, Index::single(part.term));
            return quotient_of(*part.term.inner + others * part.term.extent, part.term.extent * divisor);
        }
        if (rest.parts_.size() == 1 && is_number(rest.parts_.front().coefficient, 1)) {
            const IndexTerm& only = rest.parts_.front().term;
            if (only.kind == IndexTerm::Kind::mod && is_number(rest.constant_, 0)) {
                // (e % (d*k)) // d == (e // d) % k
                const Dim count = exact_div(only.extent, divisor);
                if (!count.is_unknown()) return remainder_of(quotient_of(*only.inner, divisor), count);
            }
        }
        return term(IndexTerm::Kind::floor_div, rest, divisor);
    }

    static Index remainder_of(const Index& index, const Dim& divisor) {
        if (is_number(divisor, 1)) return 0;
        Index rest = divide(index, divisor).rest;
        if (lies_below(rest, divisor)) return rest;
        if (auto unwrapped = without_inner_mod(rest, divisor)) return remainder_of(*unwrapped, divisor);
        if (auto factored = factor_out(rest, divisor)) {
            return remainder_of(factored->high, factored->divisor) * factored->factor + factored->low;
        }
        // A quotient may be known where the bounds of the dividend say nothing.
        const Index quotient = quotient_of_rest(rest, divisor);
        if (quotient.is_constant()) return rest - quotient * divisor;
        return term(IndexTerm::Kind::mod, rest, divisor);
    }

    // c * (e % m) is c * e modulo any divisor of c * m.
    static std::optional<Index> without_inner_mod(const Index& index, const Dim& divisor) {
        for (const Index::Part& part : index.parts_) {
            if (part.term.kind != IndexTerm::Kind::mod) continue;
            if (exact_div(part.coefficient * part.term.extent, divisor).is_unknown()) continue;
            Index others = index;
            others.add(0 - part.coefficient, part.term);
            return others + *part.term.inner * part.coefficient;
        }
        return std::nullopt;
    }

    // The sum without `pattern`, of which all parts are in it.
    static Index minus(const Index& sum, const Index& pattern) {
        Index result = sum;
        result.constant_ = result.constant_ - pattern.constant_;
        for (const Index::Part& part : pattern.parts_) result.add(0 - part.coefficient, part.term);
        return result;
    }

    // One step of the reunion, or nothing to do.
    static std::optional<Index> merged(const Index& sum) {
        for (const Index::Part& part : sum.parts_) {
            std::optional<Index> result;
            if (part.term.kind == IndexTerm::Kind::mod) result = merged_at_remainder(sum, part);
            if (part.term.kind == IndexTerm::Kind::floor_div) result = merged_at_quotient(sum, part);
            if (result) return result;
        }
        return std::nullopt;
    }

    // The part is c * (e % d). With c*d*(e // d) it makes c*e. With c*d*(f % k) it makes c*((d*f + e % d) % (d*k)),
    // which is worth it when d*f + e % d merges, as with f = e // d.
    static std::optional<Index> merged_at_remainder(const Index& sum, const Index::Part& part) {
        const Index& dividend = *part.term.inner;
        const Dim& divisor = part.term.extent;
        const Dim scale = part.coefficient * divisor;
        const Index quotient = quotient_of(dividend, divisor);
        if (!quotient.parts_.empty() && contains(sum, quotient * scale)) {
            Index rest = minus(sum, quotient * scale);
            rest.add(0 - part.coefficient, part.term);
            return rest + dividend * part.coefficient;
        }
        for (const Index::Part& other : sum.parts_) {
            if (other.term.kind != IndexTerm::Kind::mod || !(other.coefficient == scale)) continue;
            const Index whole = *other.term.inner * divisor + Index::single(part.term);
            if (contains(whole, Index::single(part.term))) continue;
            Index rest = sum;
            rest.add(0 - part.coefficient, part.term);
            rest.add(0 - other.coefficient, other.term);
            return rest + remainder_of(whole, divisor * other.term.extent) * part.coefficient;
        }
        return std::nullopt;
    }

    // The part is c*d * (e // d), and e % d has a form in which the above does not recognise it.
    static std::optional<Index> merged_at_quotient(const Index& sum, const Index::Part& part) {
        const Dim scale = exact_div(part.coefficient, part.term.extent);
        if (scale.is_unknown()) return std::nullopt;
        const Index remainder = remainder_of(*part.term.inner, part.term.extent) * scale;
        if (remainder.parts_.empty() || !contains(sum, remainder)) return std::nullopt;
        Index rest = minus(sum, remainder);
        rest.add(0 - part.coefficient, part.term);
        return rest + *part.term.inner * scale;
    }
};

void Index::merge_quotients() {
    while (auto simpler = IndexSimplifier::merged(*this)) *this = *std::move(simpler);
}

Index floor_div(const Index& a, const Dim& divisor) {
    check_divisor("floor_div", divisor);
    if (divisor == Dim(0)) return Index(0);
    return IndexSimplifier::quotient_of(a, divisor);
}

Index mod(const Index& a, const Dim& divisor) {
    check_divisor("mod", divisor);
    if (divisor == Dim(0)) return Index(0);
    return IndexSimplifier::remainder_of(a, divisor);
}

}  // namespace topstitch::loopir
