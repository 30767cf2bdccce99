// Quotients and remainders of Dims: polynomial division, then what is known about the remainder.
// What does not simplify becomes an opaque atom with normalised operands.
#include <algorithm>
#include <numeric>

#include "core/checked.h"
#include "core/dim_expr.h"
#include "core/dim_memo.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

using Kind = DimAtom::Kind;

bool is_zero(const Dim& dim) {
    return dim.is_known() && dim.value() == 0;
}

bool provably_positive(const Dim& dim) {
    return provably_nonnegative(dim - 1);
}

// The coefficient of the leading term; of a number, the number.
std::int64_t leading_coefficient(const Dim& dim) {
    return dim.is_known() ? dim.value() : DimExpr::terms_of(dim).front().coefficient;
}

struct Division {
    Dim quotient;
    Dim remainder;
};

// a = quotient * b + remainder, where no term of the remainder is divisible by the leading term of `b`,
// and coefficients over it are reduced to [0, leading coefficient). Requires a positive leading coefficient.
Division divide(const Dim& a, const Dim& b) {
    const DimTerm lead = DimExpr::terms_of(b).front();
    Division result{0, a};
    bool changed = true;
    while (changed) {
        changed = false;
        for (const DimTerm& term : DimExpr::terms_of(result.remainder)) {
            std::vector<DimAtomPtr> factors;
            if (!divide_factors(term.factors, lead.factors, factors)) continue;
            const std::int64_t coefficient = floor_quotient(term.coefficient, lead.coefficient);
            if (coefficient == 0) continue;
            const Dim step = DimExpr::from_term(coefficient, std::move(factors));
            result.quotient = result.quotient + step;
            result.remainder = result.remainder - step * b;
            changed = true;
            break;
        }
    }
    return result;
}

// The largest positive number and product of symbols by which both can be divided exactly after the constant
// of `r` has been set apart (for the number) or has turned out to be 0 (for the symbols).
Dim common_factor(const Dim& r, const Dim& d) {
    std::int64_t number = 0;
    const DimTermsView dividend(r);
    const DimTermsView divisor(d);
    // floor((g*x + c) / (g*y)) = floor((x + floor(c / g)) / y) needs y > 0, unless g divides c as well.
    const bool any_constant = provably_positive(d);
    for (const DimTerm& term : dividend) {
        if (!term.factors.empty() || !any_constant) number = std::gcd(number, term.coefficient);
    }
    for (const DimTerm& term : divisor) number = std::gcd(number, term.coefficient);

    std::vector<DimAtomPtr> symbols;
    for (const DimAtomPtr& factor : divisor.front().factors) {
        if (!factor->is_symbol()) continue;
        std::vector<DimAtomPtr> candidate = symbols;
        candidate.push_back(factor);
        std::vector<DimAtomPtr> rest;
        const auto divides = [&](const DimTerm& term) { return divide_factors(term.factors, candidate, rest); };
        if (std::all_of(dividend.begin(), dividend.end(), divides) &&
            std::all_of(divisor.begin(), divisor.end(), divides)) {
            symbols = std::move(candidate);
        }
    }
    return DimExpr::from_term(std::max<std::int64_t>(number, 1), std::move(symbols));
}

std::int64_t constant_of(const Dim& dim) {
    if (dim.is_known()) return dim.value();
    const DimTerm last = DimExpr::terms_of(dim).back();
    return last.factors.empty() ? last.coefficient : 0;
}

// `dim` when it is a single bare atom of `kind` plus a number.
const DimAtom* atom_plus_number(const Dim& dim, Kind kind) {
    const DimExpr* expr = DimExpr::of(dim);
    if (expr == nullptr || expr->terms.size() > 2) return nullptr;
    if (expr->terms.size() == 2 && !expr->terms[1].factors.empty()) return nullptr;
    const DimTerm& term = expr->terms[0];
    const bool bare = term.coefficient == 1 && term.factors.size() == 1 && term.factors[0]->kind == kind;
    return bare ? term.factors[0].get() : nullptr;
}

bool provably_in_range(const Dim& r, const Dim& d) {
    return provably_nonnegative(r) && provably_nonnegative(d - r - 1);
}

// floor_div of a remainder of `divide`.
Dim divide_remainder(const Dim& r, const Dim& d) {
    if (is_zero(r) || provably_in_range(r, d)) return 0;
    if (provably_in_range(r + d, d)) return -1;
    const Dim common = common_factor(r, d);
    if (!(common == Dim(1))) {
        const std::int64_t g = leading_coefficient(common);
        const std::int64_t constant = constant_of(r);
        const Dim exact = r - constant + Dim(floor_quotient(constant, g)) * g;
        return floor_div(exact_div(exact, common), exact_div(d, common));
    }
    if (const DimAtom* inner = atom_plus_number(r, Kind::floor_div); inner != nullptr && provably_positive(d)) {
        // (x // y + c) // d = (x + c*y) // (y*d)
        return floor_div(inner->a + Dim(constant_of(r)) * inner->b, inner->b * d);
    }
    return DimExpr::from_atom({Kind::floor_div, "", r, d});
}

// mod of a remainder of `divide`.
Dim reduce_remainder(const Dim& r, const Dim& d) {
    if (is_zero(r) || provably_in_range(r, d)) return r;
    if (provably_in_range(r + d, d)) return r + d;
    const DimTermsView terms(r);
    for (const DimTerm& term : terms) {
        for (std::size_t f = 0; f < term.factors.size(); ++f) {
            const DimAtom& atom = *term.factors[f];
            // x % n differs from x by a multiple of n, thus of d.
            if (atom.kind != Kind::mod || exact_div(atom.b, d).is_unknown()) continue;
            return mod(r - DimExpr::from_term(term.coefficient, term.factors) + replace_factor(term, f, atom.a), d);
        }
    }
    const Dim common = common_factor(r, d);
    if (!(common == Dim(1))) {
        const std::int64_t g = leading_coefficient(common);
        const std::int64_t constant = constant_of(r);
        const std::int64_t kept = floor_quotient(constant, g);
        const Dim exact = r - constant + Dim(kept) * g;
        return common * mod(exact_div(exact, common), exact_div(d, common)) + (constant - kept * g);
    }
    return DimExpr::from_atom({Kind::mod, "", r, d});
}

void check_divisor(const Dim& a, const Dim& b) {
    if (is_zero(b)) throw UserError(concat("shape: ", a.str(), " is divided by 0; a divisor must be 1 or more"));
}

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();

}  // namespace

Dim floor_div(const Dim& a, const Dim& b) {
    if (a.is_known() && b.is_known() && b.value_ != 0 && a.value_ != lowest) return floor_quotient(a.value_, b.value_);
    if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
    check_divisor(a, b);
    if (leading_coefficient(b) < 0) return floor_div(0 - a, 0 - b);
    return remembered(DimOperation::floor_div, a, b, [&] {
        const Division division = divide(a, b);
        return division.quotient + divide_remainder(division.remainder, b);
    });
}

Dim mod(const Dim& a, const Dim& b) {
    if (a.is_known() && b.is_known() && b.value_ != 0 && a.value_ != lowest) {
        return a.value_ - floor_quotient(a.value_, b.value_) * b.value_;
    }
    if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
    check_divisor(a, b);
    if (leading_coefficient(b) < 0) return 0 - mod(0 - a, 0 - b);
    return remembered(DimOperation::mod, a, b, [&] { return reduce_remainder(divide(a, b).remainder, b); });
}

Dim exact_div(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown() || is_zero(b)) return Dim::unknown();
    if (is_zero(a)) return 0;
    if (leading_coefficient(b) < 0) return exact_div(0 - a, 0 - b);
    return remembered(DimOperation::exact_div, a, b, [&] {
        const Division division = divide(a, b);
        return is_zero(division.remainder) ? division.quotient : Dim::unknown();
    });
}

Dim ceil_div(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
    check_divisor(a, b);
    if (leading_coefficient(b) < 0) return ceil_div(0 - a, 0 - b);
    if (b.is_known() || provably_positive(b)) return floor_div(a + (b - 1), b);
    return 0 - floor_div(0 - a, b);
}

}  // namespace topstitch
