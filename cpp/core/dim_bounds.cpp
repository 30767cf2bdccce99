// Proofs that a Dim is never negative, for every value >= 1 of its symbols.
// Sound but incomplete: a few rewriting steps with bounds of the opaque atoms, then a sign check.
#include <algorithm>
#include <optional>

#include "core/dim_expr.h"
#include "core/dim_memo.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

using Kind = DimAtom::Kind;

// Products of more factors than this are not expanded: 2^k terms come out.
constexpr std::size_t max_expanded_degree = 10;

class Prover {
public:
    bool nonnegative(const Dim& dim, int depth) {
        if (dim.is_unknown()) return false;
        if (dim.is_known()) return dim.value() >= 0;
        if (--budget_ < 0) return false;
        if (has_nonnegative_signs(dim, depth)) return true;
        return depth > 0 && has_nonnegative_rewrite(dim, depth - 1);
    }

private:
    // A number that the atom never goes below, when there is an obvious one.
    std::optional<std::int64_t> lower_bound(const DimAtom& atom, int depth) {
        switch (atom.kind) {
            case Kind::symbol:
                return 1;
            case Kind::floor_div:
                if (depth > 0 && nonnegative(atom.b - 1, depth - 1) && nonnegative(atom.a, depth - 1)) {
                    return nonnegative(atom.a - atom.b, depth - 1) ? 1 : 0;
                }
                return std::nullopt;
            case Kind::mod:
                if (depth > 0 && nonnegative(atom.b - 1, depth - 1)) return 0;
                return std::nullopt;
            case Kind::min:
            case Kind::max: {
                if (depth == 0) return std::nullopt;
                for (const std::int64_t bound : {1, 0}) {
                    const bool a = nonnegative(atom.a - bound, depth - 1);
                    const bool b = nonnegative(atom.b - bound, depth - 1);
                    if (atom.kind == Kind::max ? a || b : a && b) return bound;
                }
                return std::nullopt;
            }
        }
        return std::nullopt;
    }

    // Writes every atom as bound + t with t >= 0. If no coefficient over the t is negative, the sum is not.
    bool has_nonnegative_signs(const Dim& dim, int depth) {
        const DimTerms& terms = DimExpr::of(dim)->terms;
        const bool any_negative =
            std::any_of(terms.begin(), terms.end(), [](const DimTerm& t) { return t.coefficient < 0; });
        const bool too_long = std::any_of(terms.begin(), terms.end(),
                                          [](const DimTerm& t) { return t.factors.size() > max_expanded_degree; });
        if (any_negative && too_long) return false;
        Dim shifted = 0;
        for (const DimTerm& term : terms) {
            Dim product = term.coefficient;
            for (const DimAtomPtr& factor : term.factors) {
                const std::optional<std::int64_t> bound = lower_bound(*factor, depth);
                if (!bound) return false;
                if (any_negative) product = product * (variable(factor) + *bound);
            }
            if (any_negative) shifted = shifted + product;
        }
        const DimTermsView result = DimExpr::terms_of(shifted);
        return std::all_of(result.begin(), result.end(), [](const DimTerm& t) { return t.coefficient >= 0; });
    }

    // A plain variable that stands for the part of an atom above its bound.
    const Dim& variable(const DimAtomPtr& atom) {
        for (const auto& [known, symbol] : variables_) {
            if (compare_atoms(*atom, *known) == 0) return symbol;
        }
        return variables_.emplace_back(atom, Dim::symbol(concat("t", variables_.size()))).second;
    }

    // Splits the sum as factor * atom + rest; false when the atom occurs in a higher power.
    static bool split(const Dim& dim, const DimAtomPtr& atom, Dim& factor, Dim& rest) {
        factor = 0;
        rest = 0;
        for (const DimTerm& term : DimExpr::terms_of(dim)) {
            std::vector<DimAtomPtr> others;
            if (!divide_factors(term.factors, {atom}, others)) {
                rest = rest + DimExpr::from_term(term.coefficient, term.factors);
                continue;
            }
            std::vector<DimAtomPtr> remaining;
            if (divide_factors(others, {atom}, remaining)) return false;
            factor = factor + DimExpr::from_term(term.coefficient, std::move(others));
        }
        return true;
    }

    // Replaces one opaque atom by a bound on the side that its factor asks for, and tries again.
    bool has_nonnegative_rewrite(const Dim& dim, int depth) {
        for (const DimTerm& term : DimExpr::terms_of(dim)) {
            for (const DimAtomPtr& atom : term.factors) {
                if (atom->is_symbol()) continue;
                Dim factor;
                Dim rest;
                if (!split(dim, atom, factor, rest)) continue;
                if (nonnegative(0 - factor, depth)) {
                    if (holds_with_upper_bound(*atom, factor, rest, depth)) return true;
                } else if (nonnegative(factor, depth)) {
                    if (holds_with_lower_bound(*atom, factor, rest, depth)) return true;
                }
            }
        }
        return false;
    }

    bool holds_with_upper_bound(const DimAtom& atom, const Dim& factor, const Dim& rest, int depth) {
        const auto holds = [&](const Dim& bound) { return nonnegative(factor * bound + rest, depth); };
        switch (atom.kind) {
            case Kind::symbol:
                return false;
            case Kind::floor_div:  // b * (a // b) <= a
                return nonnegative(atom.b - 1, depth) && nonnegative(factor * atom.a + rest * atom.b, depth);
            case Kind::mod:
                return nonnegative(atom.b - 1, depth) &&
                       (holds(atom.b - 1) || (nonnegative(atom.a, depth) && holds(atom.a)));
            case Kind::min:
                return holds(atom.a) || holds(atom.b);
            case Kind::max:
                return holds(atom.a) && holds(atom.b);
        }
        return false;
    }

    bool holds_with_lower_bound(const DimAtom& atom, const Dim& factor, const Dim& rest, int depth) {
        const auto holds = [&](const Dim& bound) { return nonnegative(factor * bound + rest, depth); };
        switch (atom.kind) {
            case Kind::symbol:
                return false;
            case Kind::floor_div:  // b * (a // b) >= a - b + 1
                return nonnegative(atom.b - 1, depth) &&
                       nonnegative(factor * (atom.a - atom.b + 1) + rest * atom.b, depth);
            case Kind::mod:
                return nonnegative(atom.b - 1, depth) && holds(0);
            case Kind::min:
                return holds(atom.a) && holds(atom.b);
            case Kind::max:
                return holds(atom.a) || holds(atom.b);
        }
        return false;
    }

    std::vector<std::pair<DimAtomPtr, Dim>> variables_;
    int budget_ = 200;  // questions asked, so that a long expression costs little even when it cannot be proved
};

}  // namespace

bool provably_nonnegative(const Dim& a) {
    if (a.is_known()) return a.value_ >= 0;
    if (a.is_unknown()) return false;
    const auto proved = [&] {
        try {
            return Prover().nonnegative(a, 4);
        } catch (const UserError&) {  // a coefficient left 64 bits on the way: not proved
            return false;
        }
    };
    return remembered(DimOperation::nonnegative, a, 0, [&] { return Dim(proved() ? 1 : 0); }).value() == 1;
}

}  // namespace topstitch
