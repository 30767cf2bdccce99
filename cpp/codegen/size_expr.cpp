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
std::int64_t rounded_up(std::int64_t dividend, std::int64_t divisor) {
    return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}
std::int64_t product(std::int64_t a, std::int64_t b) {
    return b != 0 && a > largest / b ? largest : a * b;
}

}  // namespace

SizeExpr::SizeExpr(std::int64_t number) {
    if (number != 0) terms_.push_back({absolute(number), {}, {}});
}

SizeExpr SizeExpr::of(const Dim& dim, std::span<const Dim> params) {
    if (dim.is_known()) return SizeExpr(dim.value());
    const auto found = std::find(params.begin(), params.end(), dim);
    if (found == params.end()) throw InternalError(concat("codegen: no argument gives ", dim.str()));
    SizeExpr result;
    result.terms_.push_back({1, {static_cast<int>(found - params.begin())}, {}});
    return result;
}

bool SizeExpr::are_alike(const Term& a, const Term& b) {
    return a.params == b.params && std::equal(a.quotients.begin(), a.quotients.end(), b.quotients.begin(),
                                              b.quotients.end(), [](const Quotient& x, const Quotient& y) {
                                                  return x.divisor == y.divisor && x.dividend == y.dividend;
                                              });
}

bool operator==(const SizeExpr& a, const SizeExpr& b) {
    return std::equal(a.terms_.begin(), a.terms_.end(), b.terms_.begin(), b.terms_.end(),
                      [](const auto& x, const auto& y) { return x.factor == y.factor && SizeExpr::are_alike(x, y); });
}

void SizeExpr::add(const Term& term) {
    for (Term& known : terms_) {
        if (!are_alike(known, term)) continue;
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
            SizeExpr::Term term{product(x.factor, y.factor), x.params, x.quotients};
            term.params.insert(term.params.end(), y.params.begin(), y.params.end());
            std::sort(term.params.begin(), term.params.end());
            term.quotients.insert(term.quotients.end(), y.quotients.begin(), y.quotients.end());
            result.add(term);
        }
    }
    return result;
}

SizeExpr ceil_div(const SizeExpr& a, std::int64_t divisor) {
    if (a.is_number()) return rounded_up(a.evaluate({}), divisor);
    SizeExpr result;
    result.terms_.push_back({1, {}, {{a, divisor}}});
    return result;
}

bool SizeExpr::is_number() const {
    return std::all_of(terms_.begin(), terms_.end(),
                       [](const Term& term) { return term.params.empty() && term.quotients.empty(); });
}

std::int64_t SizeExpr::evaluate(std::span<const std::int64_t> sizes) const {
    std::int64_t result = 0;
    for (const Term& term : terms_) {
        std::int64_t value = term.factor;
        for (const int param : term.params) {
            value = product(value, absolute(sizes[static_cast<std::size_t>(param)]));
        }
        for (const Quotient& quotient : term.quotients) {
            value = product(value, rounded_up(quotient.dividend.evaluate(sizes), quotient.divisor));
        }
        result = sum(result, value);
    }
    return result;
}

}  // namespace topstitch::codegen
