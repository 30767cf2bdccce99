// The normal form behind Dim: a sum of terms, each a coefficient times a sorted product of atoms.
// Terms are sorted by descending degree, then by atoms, and no two have the same atoms.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topstitch/dim.h"

namespace topstitch {

// A symbol, or an operation that has no normal form. Immutable and shared.
struct DimAtom {
    enum class Kind : std::uint8_t { symbol, floor_div, mod, min, max };
    Kind kind = Kind::symbol;
    std::string name;      // symbol
    Dim a, b;              // the operands of the others
    std::size_t hash = 0;  // of all that

    bool is_symbol() const { return kind == Kind::symbol; }
};
using DimAtomPtr = std::shared_ptr<const DimAtom>;

struct DimTerm {
    std::int64_t coefficient = 0;
    std::vector<DimAtomPtr> factors;  // sorted; empty for the constant
};
using DimTerms = std::vector<DimTerm>;

// The terms of a Dim that is not unknown; a number other than 0 has one.
class DimTermsView {
public:
    explicit DimTermsView(const Dim& dim);
    DimTermsView(const DimTermsView&) = delete;
    DimTermsView& operator=(const DimTermsView&) = delete;

    auto begin() const { return terms_.begin(); }
    auto end() const { return terms_.end(); }
    std::size_t size() const { return terms_.size(); }
    const DimTerm& operator[](std::size_t k) const { return terms_[k]; }
    const DimTerm& front() const { return terms_.front(); }
    const DimTerm& back() const { return terms_.back(); }
    DimTerms copy() const { return {terms_.begin(), terms_.end()}; }

private:
    const Dim dim_;  // keeps the terms alive
    DimTerm number_;
    std::span<const DimTerm> terms_;
};

struct DimExpr {
    bool unknown = false;
    DimTerms terms;
    std::size_t hash = 0;  // of the terms

    static DimTermsView terms_of(const Dim& dim) { return DimTermsView(dim); }
    // The way back, from normal form.
    static Dim from_terms(DimTerms terms);
    // A Dim with one opaque atom; the operands are known not to simplify.
    static Dim from_atom(DimAtom atom);
    static Dim from_term(std::int64_t coefficient, std::vector<DimAtomPtr> factors);
    static const DimExpr* of(const Dim& dim) { return dim.expr_.get(); }
    static Dim make_unknown();
    // Equal dims have equal hashes.
    static std::size_t hash_of(const Dim& dim);
};

// Total orders, negative / zero / positive. The order of products is admissible (graded lexicographic): it
// survives multiplication, which makes polynomial division end with a unique remainder.
int compare_atoms(const DimAtom& a, const DimAtom& b);
int compare_factors(const std::vector<DimAtomPtr>& a, const std::vector<DimAtomPtr>& b);
int compare_dims(const Dim& a, const Dim& b);

// a / b as products: true, and the quotient, when every factor of `b` occurs in `a`.
bool divide_factors(const std::vector<DimAtomPtr>& a, const std::vector<DimAtomPtr>& b,
                    std::vector<DimAtomPtr>& quotient);

// One factor of a term replaced by an expression: coefficient * (the other factors) * replacement.
Dim replace_factor(const DimTerm& term, std::size_t position, const Dim& replacement);

}  // namespace topstitch
