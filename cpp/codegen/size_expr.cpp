// Arithmetic of size expressions; see size_expr.h.
// Products that pass 63 bits stay at the largest number: whatever is compared with them is smaller.
#include "codegen/size_expr.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "topstitch/error.h"

namespace topstitch::codegen {

namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

std::int64_t absolute(std::int64_t value) {
    return value == std::numeric_limits<std::int64_t>::min() ? largest : std::abs(value);
}
std::int64_t sum(std::int64_t a, std::int64_t b) {
    return a > largest - b ? largest : a + b;
}
std::int64_t product(std::int64_t a, std::int64_t b) {
    return b != 0 && a > largest / b ? largest : a * b;
}

}  // namespace

SizeExpr::SizeExpr(std::int64_t number) {
    if (number != 0) terms_.push_back({absolute(number), {}});
}

SizeExpr SizeExpr::of(const Dim& dim, std::span<const Dim> params) {
    if (dim.is_known()) return SizeExpr(dim.value());
    const auto found = std::find(params.begin(), params.end(), dim);
    if (found == params.end()) throw InternalError(concat("codegen: no argument gives ", dim.str()));
    SizeExpr result;
    result.terms_.push_back({1, {static_cast<int>(found - params.begin())}});
    return result;
}

void SizeExpr::add(const Term& term) {
    for (Term& known : terms_) {
        if (known.params != term.params) continue;
        known.factor = sum(known.factor, term.factor);
        return;
    }
    terms_.push_back(term);
}

SizeExpr operator+(const SizeExpr& a, const SizeExpr& b) {
    SizeExpr result = a;
    for (const SizeExpr::Term& term : b.terms_) result.add(term);
    return result;
}

SizeExpr operator*(const SizeExpr& a, const SizeExpr& b) {
    SizeExpr result;
    for (const SizeExpr::Term& x : a.terms_) {
        for (const SizeExpr::Term& y : b.terms_) {
            SizeExpr::Term term{product(x.factor, y.factor), x.params};
            term.params.insert(term.params.end(), y.params.begin(), y.params.end());
            std::sort(term.params.begin(), term.params.end());
            result.add(term);
        }
    }
    return result;
}

bool SizeExpr::is_number() const {
    return std::all_of(terms_.begin(), terms_.end(), [](const Term& term) { return term.params.empty(); });
}

std::int64_t SizeExpr::evaluate(std::span<const std::int64_t> sizes) const {
    std::int64_t result = 0;
    for (const Term& term : terms_) {
        std::int64_t value = term.factor;
        for (const int param : term.params) {
            value = product(value, absolute(sizes[static_cast<std::size_t>(param)]));
        }
        result = sum(result, value);
    }
    return result;
}

}  // namespace topstitch::codegen
