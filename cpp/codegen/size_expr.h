// Sums of products of a kernel's size arguments, and of quotients of such sums by numbers: what a launch computes from
// them, without symbols. Saturating and never negative: it is for counts and for bounds of magnitudes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topstitch/dim.h"

namespace topstitch::codegen {

class SizeExpr {
public:
    SizeExpr(std::int64_t number = 0);  // NOLINT: a number is a SizeExpr
    // The magnitude of `dim`: a number, or one of `params`. InternalError for anything else.
    static SizeExpr of(const Dim& dim, std::span<const Dim> params);

    friend SizeExpr operator+(const SizeExpr& a, const SizeExpr& b);
    friend SizeExpr operator*(const SizeExpr& a, const SizeExpr& b);
    // Rounded up; `divisor` is positive.
    friend SizeExpr ceil_div(const SizeExpr& a, std::int64_t divisor);
    friend bool operator==(const SizeExpr& a, const SizeExpr& b);

    bool is_number() const;
    std::int64_t evaluate(std::span<const std::int64_t> sizes) const;

private:
    struct Quotient;
    struct Term {
        std::int64_t factor = 0;
        std::vector<int> params;  // ascending
        std::vector<Quotient> quotients;
    };
    static bool are_alike(const Term& a, const Term& b);  // but for the factor
    void add(const Term& term);
    std::vector<Term> terms_;
};

struct SizeExpr::Quotient {
    SizeExpr dividend;
    std::int64_t divisor = 1;
};

SizeExpr ceil_div(const SizeExpr& a, std::int64_t divisor);

}  // namespace topstitch::codegen
