// Index expressions: affine forms over loop variables, with quotients, remainders and loaded values as terms.
// Views (reshape, transpose, slice, ...) are nothing but a rewriting of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topstitch/dim.h"

namespace topstitch::loopir {

using ValueId = std::int32_t;  // index into Kernel::instrs
using VarId = std::int32_t;    // index into Kernel::vars
inline constexpr ValueId no_value = -1;

class Index;

// How the parts of an index are spelled.
struct IndexNames {
    std::function<std::string(VarId)> var;
    std::function<std::string(ValueId)> value;
    std::function<std::string(const Dim&)> dim;
};

// What an affine form is a combination of.
struct IndexTerm {
    enum class Kind : std::uint8_t { var, floor_div, mod, value };
    Kind kind = Kind::var;
    VarId var = -1;                      // var
    ValueId value = no_value;            // value: an int64 scalar of the kernel
    std::shared_ptr<const Index> inner;  // floor_div, mod: the dividend
    Dim extent;                          // var: values lie in [0, extent); floor_div, mod: the divisor

    friend bool operator==(const IndexTerm& a, const IndexTerm& b);
};

// constant + sum of coefficient * term, in elements.
class Index {
public:
    Index(Dim constant = 0) : constant_(std::move(constant)) {}  // NOLINT: a number is an Index
    Index(std::int64_t constant) : constant_(constant) {}        // NOLINT
    Index(int constant) : constant_(constant) {}                 // NOLINT
    static Index var(VarId id, const Dim& extent);
    static Index value(ValueId id);

    struct Part {
        Dim coefficient;
        IndexTerm term;
    };
    const Dim& constant() const { return constant_; }
    const std::vector<Part>& parts() const { return parts_; }
    bool is_constant() const { return parts_.empty(); }

    bool depends_on(VarId var) const;  // also inside quotients and remainders
    // The coefficient of a bare `var`; unknown when `var` also occurs inside a quotient or remainder.
    Dim coefficient_of(VarId var) const;
    void collect_values(std::vector<ValueId>& values) const;
    void collect_vars(std::vector<VarId>& vars) const;
    // Bounds for the whole range of the variables; unknown when not provable.
    Dim lower_bound() const;
    Dim upper_bound() const;  // inclusive

    // Every variable replaced by what `lookup` gives, and simplified again.
    Index substitute(const std::function<Index(VarId, const Dim&)>& lookup) const;
    // Every loaded value replaced likewise.
    Index substitute_values(const std::function<Index(ValueId)>& lookup) const;

    friend bool operator==(const Index& a, const Index& b);
    friend Index operator+(const Index& a, const Index& b);
    friend Index operator-(const Index& a, const Index& b);
    friend Index operator*(const Index& a, const Dim& factor);
    // Divisors are extents: not negative. By an extent of 0 the result is 0, since no iteration will ask for it.
    // Simplified where the range of the dividend allows it.
    friend Index floor_div(const Index& a, const Dim& divisor);
    friend Index mod(const Index& a, const Dim& divisor);

    // "784*i0 + i1 + (i2 // 3)"
    std::string str() const;
    std::string str(const IndexNames& names) const;
    std::size_t hash() const;  // equal indices have equal hashes

private:
    friend struct IndexSimplifier;
    static Index single(const IndexTerm& term);
    void add(const Dim& coefficient, const IndexTerm& term);
    void merge_quotients();  // d * (e // d) + e % d -> e, also scaled and inside larger sums

    Dim constant_ = 0;
    std::vector<Part> parts_;
};

Index floor_div(const Index& a, const Dim& divisor);
Index mod(const Index& a, const Dim& divisor);

}  // namespace topstitch::loopir
