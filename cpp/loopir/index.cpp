// Affine index expressions: their normal form, ranges, substitution and text.
// Quotients and remainders are simplified in index_simplify.cpp.
#include "loopir/index.h"

#include <algorithm>

#include "core/dim_expr.h"
#include "core/mixed_hash.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

bool is_number(const Dim& dim, std::int64_t value) {
    return dim.is_known() && dim.value() == value;
}

bool is_quotient(const IndexTerm& term) {
    return term.kind == IndexTerm::Kind::floor_div || term.kind == IndexTerm::Kind::mod;
}

// Numbers come first, in their order; expressions are ordered by their text.
int compare(const Dim& a, const Dim& b) {
    if (a.is_known() && b.is_known()) return a.value() < b.value() ? -1 : a.value() > b.value() ? 1 : 0;
    if (a.is_known() != b.is_known()) return a.is_known() ? -1 : 1;
    if (a == b) return 0;
    return a.str().compare(b.str());
}

int compare(const Index& a, const Index& b);

template <typename T>
int compare_numbers(T a, T b) {
    return a < b ? -1 : b < a ? 1 : 0;
}

int compare(const IndexTerm& a, const IndexTerm& b) {
    if (a.kind != b.kind) return compare_numbers(a.kind, b.kind);
    switch (a.kind) {
        case IndexTerm::Kind::var:
            return compare_numbers(a.var, b.var);
        case IndexTerm::Kind::value:
            return compare_numbers(a.value, b.value);
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            if (a.inner != b.inner) {
                if (int order = compare(*a.inner, *b.inner)) return order;
            }
            return compare(a.extent, b.extent);
    }
    return 0;
}

int compare(const Index& a, const Index& b) {
    const std::size_t count = std::min(a.parts().size(), b.parts().size());
    for (std::size_t k = 0; k < count; ++k) {
        if (int order = compare(a.parts()[k].term, b.parts()[k].term)) return order;
        if (int order = compare(a.parts()[k].coefficient, b.parts()[k].coefficient)) return order;
    }
    if (a.parts().size() != b.parts().size()) return compare_numbers(a.parts().size(), b.parts().size());
    return compare(a.constant(), b.constant());
}

struct Bounds {
    Dim lower;
    Dim upper;
};

// floor(a / divisor) for a lower bound `a`.
Dim lower_quotient(const Dim& a, const Dim& divisor) {
    Dim exact = exact_div(a, divisor);
    if (!exact.is_unknown()) return exact;
    if (!(a.is_known() && divisor.is_known()) && provably_nonnegative(a)) return 0;
    return floor_div(a, divisor);
}

// floor(a / divisor) for an upper bound `a`; most are of the form k * divisor - 1.
Dim upper_quotient(const Dim& a, const Dim& divisor) {
    Dim exact = exact_div(a + 1, divisor);
    if (!exact.is_unknown()) return exact - 1;
    return floor_div(a, divisor);
}

Bounds bounds_of(const IndexTerm& term) {
    switch (term.kind) {
        case IndexTerm::Kind::var:
        case IndexTerm::Kind::mod:
            return {0, term.extent - 1};
        case IndexTerm::Kind::floor_div:
            return {lower_quotient(term.inner->lower_bound(), term.extent),
                    upper_quotient(term.inner->upper_bound(), term.extent)};
        case IndexTerm::Kind::value:
            break;
    }
    return {Dim::unknown(), Dim::unknown()};
}

// The bounds of coefficient * term; unknown when the sign of the coefficient is.
Bounds bounds_of(const Index::Part& part) {
    const bool rising = provably_nonnegative(part.coefficient);
    if (!rising && !provably_nonnegative(0 - part.coefficient)) return {Dim::unknown(), Dim::unknown()};
    const Bounds term = bounds_of(part.term);
    const Dim low = part.coefficient * term.lower;
    const Dim high = part.coefficient * term.upper;
    return rising ? Bounds{low, high} : Bounds{high, low};
}

std::size_t hash_of(const IndexTerm& term) {
    std::size_t seed = static_cast<std::size_t>(term.kind);
    switch (term.kind) {
        case IndexTerm::Kind::var:
            return mixed_hash(seed, static_cast<std::size_t>(term.var));
        case IndexTerm::Kind::value:
            return mixed_hash(seed, static_cast<std::size_t>(term.value));
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            break;
    }
    return mixed_hash(mixed_hash(seed, term.inner->hash()), DimExpr::hash_of(term.extent));
}

// Is the text in one pair of parentheses?
bool is_wrapped(const std::string& text) {
    int depth = 0;
    for (std::size_t k = 0; k < text.size(); ++k) {
        if (text[k] == '(') ++depth;
        if (text[k] == ')') --depth;
        if (depth == 0) return k > 0 && k + 1 == text.size();
    }
    return false;
}

// Puts the text in parentheses if any of `operators` occurs in it.
std::string wrap(const std::string& text, std::string_view operators) {
    return text.find_first_of(operators) != std::string::npos && !is_wrapped(text) ? "(" + text + ")" : text;
}

std::string term_text(const IndexTerm& term, const IndexNames& names) {
    switch (term.kind) {
        case IndexTerm::Kind::var:
            return names.var(term.var);
        case IndexTerm::Kind::value:
            return names.value(term.value);
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            break;
    }
    const char* sign = term.kind == IndexTerm::Kind::floor_div ? " // " : " % ";
    return "(" + wrap(term.inner->str(names), " *-") + sign + wrap(names.dim(term.extent), " *") + ")";
}

// Appends "+ text" or "- text" to a sum.
void append(std::string& sum, bool negative, const std::string& text) {
    if (sum.empty()) {
        sum = negative ? "-" + text : text;
    } else {
        sum += (negative ? " - " : " + ") + text;
    }
}

void append_constant(std::string& sum, const Dim& constant, const IndexNames& names) {
    if (is_number(constant, 0)) return;
    if (constant.is_known() && constant.value() < 0) {
        append(sum, true, names.dim(constant).substr(1));
    } else {
        append(sum, false, names.dim(constant));
    }
}

}  // namespace

bool operator==(const IndexTerm& a, const IndexTerm& b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
        case IndexTerm::Kind::var:
            return a.var == b.var;
        case IndexTerm::Kind::value:
            return a.value == b.value;
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            break;
    }
    return a.extent == b.extent && (a.inner == b.inner || *a.inner == *b.inner);
}

Index Index::single(const IndexTerm& term) {
    Index index;
    index.parts_.push_back({1, term});
    return index;
}

Index Index::var(VarId id, const Dim& extent) {
    IndexTerm term;
    term.kind = IndexTerm::Kind::var;
    term.var = id;
    term.extent = extent;
    return single(term);
}

Index Index::value(ValueId id) {
    IndexTerm term;
    term.kind = IndexTerm::Kind::value;
    term.value = id;
    return single(term);
}

void Index::add(const Dim& coefficient, const IndexTerm& term) {
    if (is_number(coefficient, 0)) return;
    auto place = std::lower_bound(parts_.begin(), parts_.end(), term, [](const Part& part, const IndexTerm& wanted) {
        return compare(part.term, wanted) < 0;
    });
    if (place == parts_.end() || !(place->term == term)) {
        parts_.insert(place, {coefficient, term});
        return;
    }
    place->coefficient = place->coefficient + coefficient;
    if (is_number(place->coefficient, 0)) parts_.erase(place);
}

bool Index::depends_on(VarId var) const {
    return std::any_of(parts_.begin(), parts_.end(), [var](const Part& part) {
        return is_quotient(part.term) ? part.term.inner->depends_on(var) : part.term.var == var;
    });
}

Dim Index::coefficient_of(VarId var) const {
    Dim coefficient = 0;
    for (const Part& part : parts_) {
        if (is_quotient(part.term)) {
            if (part.term.inner->depends_on(var)) return Dim::unknown();
        } else if (part.term.kind == IndexTerm::Kind::var && part.term.var == var) {
            coefficient = part.coefficient;
        }
    }
    return coefficient;
}

void Index::collect_values(std::vector<ValueId>& values) const {
    for (const Part& part : parts_) {
        if (is_quotient(part.term)) {
            part.term.inner->collect_values(values);
        } else if (part.term.kind == IndexTerm::Kind::value &&
                   std::find(values.begin(), values.end(), part.term.value) == values.end()) {
            values.push_back(part.term.value);
        }
    }
}

void Index::collect_vars(std::vector<VarId>& vars) const {
    for (const Part& part : parts_) {
        if (is_quotient(part.term)) {
            part.term.inner->collect_vars(vars);
        } else if (part.term.kind == IndexTerm::Kind::var &&
                   std::find(vars.begin(), vars.end(), part.term.var) == vars.end()) {
            vars.push_back(part.term.var);
        }
    }
}

Dim Index::lower_bound() const {
    Dim bound = constant_;
    for (const Part& part : parts_) bound = bound + bounds_of(part).lower;
    return bound;
}

Dim Index::upper_bound() const {
    Dim bound = constant_;
    for (const Part& part : parts_) bound = bound + bounds_of(part).upper;
    return bound;
}

namespace {

// Rebuilds `index` with `leaf` in place of each variable and value.
Index rebuild(const Index& index, const std::function<Index(const IndexTerm&)>& leaf) {
    Index result = index.constant();
    for (const Index::Part& part : index.parts()) {
        switch (part.term.kind) {
            case IndexTerm::Kind::var:
            case IndexTerm::Kind::value:
                result = result + leaf(part.term) * part.coefficient;
                break;
            case IndexTerm::Kind::floor_div:
                result = result + floor_div(rebuild(*part.term.inner, leaf), part.term.extent) * part.coefficient;
                break;
            case IndexTerm::Kind::mod:
                result = result + mod(rebuild(*part.term.inner, leaf), part.term.extent) * part.coefficient;
                break;
        }
    }
    return result;
}

}  // namespace

Index Index::substitute(const std::function<Index(VarId, const Dim&)>& lookup) const {
    return rebuild(*this, [&](const IndexTerm& term) {
        return term.kind == IndexTerm::Kind::var ? lookup(term.var, term.extent) : Index::value(term.value);
    });
}

Index Index::substitute_values(const std::function<Index(ValueId)>& lookup) const {
    return rebuild(*this, [&](const IndexTerm& term) {
        return term.kind == IndexTerm::Kind::value ? lookup(term.value) : Index::var(term.var, term.extent);
    });
}

bool operator==(const Index& a, const Index& b) {
    if (a.parts_.size() != b.parts_.size() || !(a.constant_ == b.constant_)) return false;
    return std::equal(
        a.parts_.begin(), a.parts_.end(), b.parts_.begin(),
        [](const Index::Part& p, const Index::Part& q) { return p.coefficient == q.coefficient && p.term == q.term; });
}

Index operator+(const Index& a, const Index& b) {
    Index sum = a;
    sum.constant_ = sum.constant_ + b.constant_;
    for (const Index::Part& part : b.parts_) sum.add(part.coefficient, part.term);
    sum.merge_quotients();
    return sum;
}

Index operator-(const Index& a, const Index& b) {
    return a + b * -1;
}

Index operator*(const Index& a, const Dim& factor) {
    Index product = is_number(a.constant_, 0) ? Dim(0) : a.constant_ * factor;
    for (const Index::Part& part : a.parts_) product.add(part.coefficient * factor, part.term);
    return product;
}

std::string Index::str() const {
    return str({[](VarId var) { return concat("i", var); }, [](ValueId value) { return concat("%", value); },
                [](const Dim& dim) { return dim.str(); }});
}

std::string Index::str(const IndexNames& names) const {
    std::string sum;
    auto is_negative = [](const Part& part) { return part.coefficient.is_known() && part.coefficient.value() < 0; };
    // "783 - i0" reads better than "-i0 + 783".
    const bool constant_first = !parts_.empty() && is_negative(parts_.front());
    if (constant_first) append_constant(sum, constant_, names);
    for (const Part& part : parts_) {
        const std::string term = term_text(part.term, names);
        const bool negative = is_negative(part);
        if (is_number(part.coefficient, 1) || is_number(part.coefficient, -1)) {
            append(sum, negative, term);
        } else {
            const std::string factor = names.dim(part.coefficient);
            append(sum, negative, wrap(negative ? factor.substr(1) : factor, " ") + "*" + term);
        }
    }
    if (!constant_first) append_constant(sum, constant_, names);
    return sum.empty() ? "0" : sum;
}

std::size_t Index::hash() const {
    std::size_t seed = DimExpr::hash_of(constant_);
    for (const Part& part : parts_)
        seed = mixed_hash(mixed_hash(seed, DimExpr::hash_of(part.coefficient)), hash_of(part.term));
    return seed;
}

}  // namespace topstitch::loopir
