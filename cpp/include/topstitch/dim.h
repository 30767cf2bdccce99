// One extent of a shape: a number, an expression over named symbols, or unknown.
// Expressions are kept in a normal form, so that equal extents compare equal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topstitch/export.h"

namespace topstitch {

struct DimExpr;

// A sum of products of symbols with integer coefficients. What has no such form (a quotient that
// leaves a remainder, a minimum) becomes an opaque factor. Symbols stand for extents of at least 1.
class TOPSTITCH_API Dim {
public:
    Dim(std::int64_t value = 0) : value_(value) {}  // NOLINT: a number is a Dim
    static Dim symbol(std::string_view name);
    static Dim unknown();

    bool is_known() const { return expr_ == nullptr; }
    bool is_unknown() const;               // nothing at all is known
    bool is_symbol() const;                // exactly one bare symbol
    std::int64_t value() const;            // requires is_known()
    std::string_view symbol_name() const;  // requires is_symbol()

    // "64", "batch", "2*batch + 1", or "?" when unknown.
    std::string str() const;

    // The value with symbols looked up; `lookup` throws when a name is missing.
    std::int64_t evaluate(const std::function<std::int64_t(std::string_view)>& lookup) const;
    // Every symbol's name, each once, in order of appearance.
    void collect_symbols(std::vector<std::string>& names) const;
    // The expression with each symbol replaced by what `lookup` gives.
    Dim substitute(const std::function<Dim(std::string_view)>& lookup) const;

    // Structural equality; an unknown equals nothing, not even itself.
    friend bool operator==(const Dim& a, const Dim& b) {
        return both_known(a, b) ? a.value_ == b.value_ : equal_exprs(a, b);
    }

    // An unknown operand makes the result unknown. UserError when a number leaves 64 bits or a divisor is 0.
    // The quotient rounds toward negative infinity and the remainder has the divisor's sign, as Python's.
    friend Dim operator+(const Dim& a, const Dim& b) {
        return both_known(a, b) && is_small(a.value_) && is_small(b.value_) ? Dim(a.value_ + b.value_) : add(a, b);
    }
    friend Dim operator-(const Dim& a, const Dim& b) {
        return both_known(a, b) && is_small(a.value_) && is_small(b.value_) ? Dim(a.value_ - b.value_) : subtract(a, b);
    }
    friend Dim operator*(const Dim& a, const Dim& b) {
        return both_known(a, b) && is_small(a.value_) && is_small(b.value_) ? Dim(a.value_ * b.value_) : multiply(a, b);
    }
    friend TOPSTITCH_API Dim floor_div(const Dim& a, const Dim& b);
    friend TOPSTITCH_API Dim mod(const Dim& a, const Dim& b);
    friend TOPSTITCH_API Dim min(const Dim& a, const Dim& b);
    friend TOPSTITCH_API Dim max(const Dim& a, const Dim& b);

    // The quotient when `b` divides `a` exactly for every value of the symbols, else unknown.
    friend TOPSTITCH_API Dim exact_div(const Dim& a, const Dim& b);
    // True when `a` >= 0 for every value >= 1 of the symbols; false also means "not proved".
    friend TOPSTITCH_API bool provably_nonnegative(const Dim& a);

private:
    friend struct DimExpr;
    explicit Dim(std::shared_ptr<const DimExpr> expr) : expr_(std::move(expr)) {}

    static bool both_known(const Dim& a, const Dim& b) { return a.is_known() && b.is_known(); }
    // Sums and products of small numbers cannot overflow.
    static bool is_small(std::int64_t value) { return value >= -(1LL << 31) && value < (1LL << 31); }
    static bool equal_exprs(const Dim& a, const Dim& b);
    static Dim add(const Dim& a, const Dim& b);
    static Dim subtract(const Dim& a, const Dim& b);
    static Dim multiply(const Dim& a, const Dim& b);

    std::int64_t value_ = 0;
    std::shared_ptr<const DimExpr> expr_;  // null for a number
};

TOPSTITCH_API Dim floor_div(const Dim& a, const Dim& b);
TOPSTITCH_API Dim mod(const Dim& a, const Dim& b);
TOPSTITCH_API Dim min(const Dim& a, const Dim& b);
TOPSTITCH_API Dim max(const Dim& a, const Dim& b);
TOPSTITCH_API Dim exact_div(const Dim& a, const Dim& b);
TOPSTITCH_API bool provably_nonnegative(const Dim& a);
TOPSTITCH_API Dim ceil_div(const Dim& a, const Dim& b);

}  // namespace topstitch
