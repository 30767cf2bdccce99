// Attributes: the data, other than tensors, that an operation is given.
// Plain values, so that printing, hashing, comparing and saving them is generic.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "topstitch/dtype.h"
#include "topstitch/export.h"
#include "topstitch/ndarray.h"
#include "topstitch/shape.h"

namespace topstitch {

enum class AttributeKind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    string,
    dtype,
    integers,
    shape,
    array,
    function,
};

// The body of a loop or of a branch (graph/function.h); never changed once it is an attribute.
struct Function;
using FunctionPtr = std::shared_ptr<const Function>;

// Alternatives in the order of AttributeKind; `none` is an optional attribute that was left out.
using Attribute = std::variant<std::monostate, bool, std::int64_t, double, std::string, DType,
                               std::vector<std::int64_t>, Shape, NDArray, FunctionPtr>;

inline AttributeKind kind_of(const Attribute& value) {
    return static_cast<AttributeKind>(value.index());
}

// Equal kind and value; reals and arrays by their bits (so NaN equals itself, and 0.0 differs from -0.0);
// functions by their structure.
TOPSTITCH_API bool equal(const Attribute& a, const Attribute& b);

// An attribute that is a list of integers or the name of a rule that gives them: `{1, 2}`, `2`, "same".
class IntegersOrName {
public:
    IntegersOrName(std::int64_t number) : value_(std::vector{number}) {}                           // NOLINT
    IntegersOrName(int number) : IntegersOrName(std::int64_t{number}) {}                           // NOLINT
    IntegersOrName(std::initializer_list<std::int64_t> numbers) : value_(std::vector(numbers)) {}  // NOLINT
    IntegersOrName(std::vector<std::int64_t> numbers) : value_(std::move(numbers)) {}              // NOLINT
    IntegersOrName(std::string name) : value_(std::move(name)) {}                                  // NOLINT
    IntegersOrName(const char* name) : value_(std::string(name)) {}                                // NOLINT
    operator const Attribute&() const { return value_; }                                           // NOLINT

private:
    Attribute value_;
};

using NamedAttributes = std::vector<std::pair<std::string, Attribute>>;

}  // namespace topstitch
