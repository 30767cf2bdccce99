// Dims: sums and products in normal form, comparison, text, evaluation and substitution.
// Quotients are in dim_divide.cpp, proofs of bounds in dim_bounds.cpp.
#include "topstitch/dim.h"

#include <algorithm>

#include "core/checked.h"
#include "core/dim_expr.h"
#include "core/dim_memo.h"
#include "core/mixed_hash.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

using Kind = DimAtom::Kind;

std::int64_t must_fit(std::optional<std::int64_t> value) {
    if (!value) throw UserError("shape: a size is too large: it does not fit in 63 bits");
    return *value;
}

// Sorts and merges terms with equal factors, and drops those with coefficient 0.
void normalize(DimTerms& terms) {
    std::sort(terms.begin(), terms.end(),
              [](const DimTerm& a, const DimTerm& b) { return compare_factors(a.factors, b.factors) < 0; });
    DimTerms merged;
    for (DimTerm& term : terms) {
        if (!merged.empty() && compare_factors(merged.back().factors, term.factors) == 0) {
            merged.back().coefficient = must_fit(checked_add(merged.back().coefficient, term.coefficient));
        } else {
            if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
            merged.push_back(std::move(term));
        }
    }
    if (!merged.empty() && merged.back().coefficient == 0) merged.pop_back();
    terms = std::move(merged);
}

bool has_atom(const DimTerms& terms, Kind kind) {
    return std::any_of(terms.begin(), terms.end(), [&](const DimTerm& term) {
        return std::any_of(term.factors.begin(), term.factors.end(),
                           [&](const DimAtomPtr& factor) { return factor->kind == kind; });
    });
}

// Finds c * rest * mod(x, d) + c * rest * d * floor_div(x, d), which is c * rest * x, and rewrites one such pair.
bool merge_quotient_and_remainder(DimTerms& terms) {
    if (!has_atom(terms, Kind::mod) || !has_atom(terms, Kind::floor_div)) return false;
    for (std::size_t i = 0; i < terms.size(); ++i) {
        for (std::size_t f = 0; f < terms[i].factors.size(); ++f) {
            const DimAtom& atom = *terms[i].factors[f];
            if (atom.kind != Kind::mod) continue;
            const DimTermsView partner =
                DimExpr::terms_of(replace_factor(terms[i], f, atom.b * floor_div(atom.a, atom.b)));
            if (partner.size() != 1) continue;
            const auto found = std::find_if(terms.begin(), terms.end(), [&](const DimTerm& term) {
                return term.coefficient == partner[0].coefficient &&
                       compare_factors(term.factors, partner[0].factors) == 0;
            });
            if (found == terms.end()) continue;
            const DimTermsView whole = DimExpr::terms_of(replace_factor(terms[i], f, atom.a));
            const auto j = found - terms.begin();
            terms.erase(terms.begin() + std::max<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(i), j));
            terms.erase(terms.begin() + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(i), j));
            terms.insert(terms.end(), whole.begin(), whole.end());
            return true;
        }
    }
    return false;
}

Dim sum_of(DimTerms terms) {
    normalize(terms);
    while (merge_quotient_and_remainder(terms)) normalize(terms);
    return DimExpr::from_terms(std::move(terms));
}

void append_scaled(DimTerms& terms, const Dim& dim, std::int64_t scale) {
    for (const DimTerm& term : DimExpr::terms_of(dim))
        terms.push_back({must_fit(checked_mul(term.coefficient, scale)), term.factors});
}

DimTerms products(const Dim& a, const Dim& b) {
    DimTerms terms;
    const DimTermsView right = DimExpr::terms_of(b);
    for (const DimTerm& x : DimExpr::terms_of(a)) {
        for (const DimTerm& y : right) {
            DimTerm product;
            product.coefficient = must_fit(checked_mul(x.coefficient, y.coefficient));
            product.factors.reserve(x.factors.size() + y.factors.size());
            std::merge(x.factors.begin(), x.factors.end(), y.factors.begin(), y.factors.end(),
                       std::back_inserter(product.factors),
                       [](const DimAtomPtr& p, const DimAtomPtr& q) { return compare_atoms(*p, *q) < 0; });
            terms.push_back(std::move(product));
        }
    }
    return terms;
}

std::string parenthesized(const Dim& dim) {
    const bool simple = dim.is_symbol() || (dim.is_known() && dim.value() >= 0);
    return simple ? dim.str() : "(" + dim.str() + ")";
}

std::string atom_str(const DimAtom& atom) {
    switch (atom.kind) {
        case Kind::symbol:
            return atom.name;
        case Kind::floor_div:
            return "(" + parenthesized(atom.a) + " // " + parenthesized(atom.b) + ")";
        case Kind::mod:
            return "(" + parenthesized(atom.a) + " % " + parenthesized(atom.b) + ")";
        case Kind::min:
            return "min(" + atom.a.str() + ", " + atom.b.str() + ")";
        case Kind::max:
            return "max(" + atom.a.str() + ", " + atom.b.str() + ")";
    }
    return "";
}

// The Dim with each symbol replaced; every operation is done again, so that it simplifies again.
Dim apply(Kind kind, const Dim& a, const Dim& b) {
    switch (kind) {
        case Kind::floor_div:
            return floor_div(a, b);
        case Kind::mod:
            return mod(a, b);
        case Kind::min:
            return min(a, b);
        case Kind::max:
            return max(a, b);
        case Kind::symbol:
            break;
    }
    throw InternalError("internal error: a symbol has no operands");
}

}  // namespace

DimTermsView::DimTermsView(const Dim& dim) : dim_(dim) {
    if (const DimExpr* expr = DimExpr::of(dim_)) {
        terms_ = expr->terms;
    } else if (dim_.value() != 0) {
        number_.coefficient = dim_.value();
        terms_ = {&number_, 1};
    }
}

Dim DimExpr::from_terms(DimTerms terms) {
    if (terms.empty()) return Dim(0);
    if (terms.size() == 1 && terms[0].factors.empty()) return Dim(terms[0].coefficient);
    auto expr = std::make_shared<DimExpr>();
    for (const DimTerm& term : terms) {
        expr->hash = mixed_hash(expr->hash, static_cast<std::size_t>(term.coefficient));
        for (const DimAtomPtr& factor : term.factors) expr->hash = mixed_hash(expr->hash, factor->hash);
    }
    expr->terms = std::move(terms);
    return Dim(std::shared_ptr<const DimExpr>(std::move(expr)));
}

Dim DimExpr::from_atom(DimAtom atom) {
    const std::size_t seed = mixed_hash(static_cast<std::size_t>(atom.kind), std::hash<std::string>{}(atom.name));
    atom.hash = mixed_hash(mixed_hash(seed, hash_of(atom.a)), hash_of(atom.b));
    return from_term(1, {std::make_shared<const DimAtom>(std::move(atom))});
}

Dim DimExpr::from_term(std::int64_t coefficient, std::vector<DimAtomPtr> factors) {
    if (coefficient == 0) return Dim(0);
    DimTerms terms(1);
    terms[0] = DimTerm{coefficient, std::move(factors)};
    return from_terms(std::move(terms));
}

Dim DimExpr::make_unknown() {
    static const std::shared_ptr<const DimExpr> unknown = [] {
        auto expr = std::make_shared<DimExpr>();
        expr->unknown = true;
        return expr;
    }();
    return Dim(unknown);
}

std::size_t DimExpr::hash_of(const Dim& dim) {
    return dim.is_known() ? std::hash<std::int64_t>{}(dim.value_) : dim.expr_->hash;
}

int compare_atoms(const DimAtom& a, const DimAtom& b) {
    if (&a == &b) return 0;
    if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
    if (a.is_symbol()) return a.name.compare(b.name);
    const int first = compare_dims(a.a, b.a);
    return first != 0 ? first : compare_dims(a.b, b.b);
}

int compare_factors(const std::vector<DimAtomPtr>& a, const std::vector<DimAtomPtr>& b) {
    if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;  // higher degree first
    for (std::size_t i = 0; i < a.size(); ++i) {
        const int order = compare_atoms(*a[i], *b[i]);
        if (order != 0) return order;
    }
    return 0;
}

int compare_dims(const Dim& a, const Dim& b) {
    if (DimExpr::of(a) != nullptr && DimExpr::of(a) == DimExpr::of(b)) return 0;
    const DimTermsView x(a);
    const DimTermsView y(b);
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        const int order = compare_factors(x[i].factors, y[i].factors);
        if (order != 0) return order;
        if (x[i].coefficient != y[i].coefficient) return x[i].coefficient < y[i].coefficient ? -1 : 1;
    }
    if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
    return 0;
}

bool divide_factors(const std::vector<DimAtomPtr>& a, const std::vector<DimAtomPtr>& b,
                    std::vector<DimAtomPtr>& quotient) {
    quotient.clear();
    std::size_t next = 0;
    for (const DimAtomPtr& factor : a) {
        if (next < b.size() && compare_atoms(*factor, *b[next]) == 0) {
            ++next;
        } else {
            quotient.push_back(factor);
        }
    }
    return next == b.size();
}

Dim replace_factor(const DimTerm& term, std::size_t position, const Dim& replacement) {
    std::vector<DimAtomPtr> others = term.factors;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(position));
    return DimExpr::from_term(term.coefficient, std::move(others)) * replacement;
}

Dim Dim::symbol(std::string_view name) {
    // These characters have a meaning in the text of a Dim or of a shape.
    const bool reserved = name.find_first_of(" \t\r\n+-*/%(),?") != std::string_view::npos;
    const bool number = !name.empty() && name[0] >= '0' && name[0] <= '9';
    if (name.empty() || reserved || number) {
        throw UserError(concat("shape: '", name,
                               "' cannot name a dim; use a name like 'batch', without spaces, "
                               "operators, brackets, commas or '?', that does not begin with a digit"));
    }
    return DimExpr::from_atom(DimAtom{Kind::symbol, std::string(name), 0, 0});
}

Dim Dim::unknown() {
    return DimExpr::make_unknown();
}

bool Dim::is_unknown() const {
    return expr_ != nullptr && expr_->unknown;
}

bool Dim::is_symbol() const {
    return expr_ != nullptr && expr_->terms.size() == 1 && expr_->terms[0].coefficient == 1 &&
           expr_->terms[0].factors.size() == 1 && expr_->terms[0].factors[0]->is_symbol();
}

std::int64_t Dim::value() const {
    internal_check(is_known(), "Dim::value() of a dim that is not a number");
    return value_;
}

std::string_view Dim::symbol_name() const {
    internal_check(is_symbol(), "Dim::symbol_name() of a dim that is not a symbol");
    return expr_->terms[0].factors[0]->name;
}

std::string Dim::str() const {
    if (is_known()) return std::to_string(value_);
    if (is_unknown()) return "?";
    std::string text;
    for (const DimTerm& term : expr_->terms) {
        std::string product;
        for (const DimAtomPtr& factor : term.factors) {
            if (!product.empty()) product += "*";
            product += atom_str(*factor);
        }
        std::string number = std::to_string(term.coefficient);
        const bool negative = number[0] == '-';
        if (negative) number.erase(0, 1);
        if (product.empty()) {
            product = number;
        } else if (number != "1") {
            product = number + "*" + product;
        }
        if (text.empty()) {
            text = negative ? "-" + product : product;
        } else {
            text += (negative ? " - " : " + ") + product;
        }
    }
    // A quotient that stands alone needs no brackets.
    const bool lone_quotient = expr_->terms.size() == 1 && expr_->terms[0].coefficient == 1 &&
                               expr_->terms[0].factors.size() == 1 && text[0] == '(';
    return lone_quotient ? text.substr(1, text.size() - 2) : text;
}

std::int64_t Dim::evaluate(const std::function<std::int64_t(std::string_view)>& lookup) const {
    const Dim number = substitute([&](std::string_view name) { return Dim(lookup(name)); });
    internal_check(number.is_known(), "Dim::evaluate() of an unknown dim");
    return number.value_;
}

void Dim::collect_symbols(std::vector<std::string>& names) const {
    if (expr_ == nullptr) return;
    for (const DimTerm& term : expr_->terms) {
        for (const DimAtomPtr& factor : term.factors) {
            if (factor->is_symbol()) {
                if (std::find(names.begin(), names.end(), factor->name) == names.end()) names.push_back(factor->name);
            } else {
                factor->a.collect_symbols(names);
                factor->b.collect_symbols(names);
            }
        }
    }
}

Dim Dim::substitute(const std::function<Dim(std::string_view)>& lookup) const {
    if (expr_ == nullptr || expr_->unknown) return *this;
    Dim sum = 0;
    for (const DimTerm& term : expr_->terms) {
        Dim product = term.coefficient;
        for (const DimAtomPtr& factor : term.factors) {
            product = product * (factor->is_symbol()
                                     ? lookup(factor->name)
                                     : apply(factor->kind, factor->a.substitute(lookup), factor->b.substitute(lookup)));
        }
        sum = sum + product;
    }
    return sum;
}

bool Dim::equal_exprs(const Dim& a, const Dim& b) {
    if (a.is_known() || b.is_known() || a.is_unknown() || b.is_unknown()) return false;
    if (a.expr_ == b.expr_) return true;
    return a.expr_->hash == b.expr_->hash && compare_dims(a, b) == 0;
}

Dim Dim::add(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown()) return unknown();
    if (both_known(a, b)) return must_fit(checked_add(a.value_, b.value_));
    return remembered(DimOperation::add, a, b, [&] {
        DimTerms terms = DimExpr::terms_of(a).copy();
        append_scaled(terms, b, 1);
        return sum_of(std::move(terms));
    });
}

Dim Dim::subtract(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown()) return unknown();
    if (both_known(a, b)) return must_fit(checked_sub(a.value_, b.value_));
    return remembered(DimOperation::subtract, a, b, [&] {
        DimTerms terms = DimExpr::terms_of(a).copy();
        append_scaled(terms, b, -1);
        return sum_of(std::move(terms));
    });
}

Dim Dim::multiply(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown()) return unknown();
    if (both_known(a, b)) return must_fit(checked_mul(a.value_, b.value_));
    return remembered(DimOperation::multiply, a, b, [&] { return sum_of(products(a, b)); });
}

Dim min(const Dim& a, const Dim& b) {
    if (Dim::both_known(a, b)) return a.value_ < b.value_ ? a : b;
    if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
    return remembered(DimOperation::min, a, b, [&] {
        if (provably_nonnegative(b - a)) return a;
        if (provably_nonnegative(a - b)) return b;
        return compare_dims(a, b) <= 0 ? DimExpr::from_atom({Kind::min, "", a, b})
                                       : DimExpr::from_atom({Kind::min, "", b, a});
    });
}

Dim max(const Dim& a, const Dim& b) {
    if (Dim::both_known(a, b)) return a.value_ > b.value_ ? a : b;
    if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
    return remembered(DimOperation::max, a, b, [&] {
        if (provably_nonnegative(a - b)) return a;
        if (provably_nonnegative(b - a)) return b;
        return compare_dims(a, b) <= 0 ? DimExpr::from_atom({Kind::max, "", a, b})
                                       : DimExpr::from_atom({Kind::max, "", b, a});
    });
}

}  // namespace topstitch
