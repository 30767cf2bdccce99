// Functions that emitted source calls where the language has no operator of exactly our meaning.
// Only those that a kernel calls are written out before it.
#pragma once

#include <compare>
#include <map>
#include <string>

#include "codegen/dialect.h"
#include "loopir/kernel.h"
#include "loopir/math_expand.h"

namespace topstitch::codegen {

// In the order in which they are written: later ones may call earlier ones.
enum class Helper : std::uint8_t {
    divide,     // integers: by 0 gives 0
    remainder,  // integers: by 0 gives 0; floats: fmod, exact
    minimum,    // floats: NaN wins, -0 is less than +0
    maximum,
    minimum_number,  // floats: NaN is ignored
    maximum_number,
    saturate,        // float32 to `type`, an integer
    bfloat_bits,     // float32 to the bits of bfloat16, to nearest even
    floor_quotient,  // of indices, toward negative infinity
    floor_remainder,
    replaces,     // argmin, argmax: is a value better than the best one
    improve,      // one step of argmin, argmax
    add_to_pair,  // one step of a sum in two float32 numbers
    sum_of_pair,
    join,         // the parts of all threads of a group
    is_moderate,  // floats: the magnitude is at most `most`, and not below 1 / most
    prefix,       // the parts of all threads before each
    load_four,    // from a buffer: as many of four neighbours as there are, else 0
    store_four,
    math,  // a function that the language has not, or only approximately
};

struct HelperKey {
    Helper helper;
    DType type = DType::float32;
    loopir::Combiner combiner = loopir::Combiner::sum;  // of replaces, improve, join and prefix
    bool paired = false;                                // join
    loopir::ScalarOp op = loopir::ScalarOp::constant;   // math
    auto operator<=>(const HelperKey&) const = default;
};

class Helpers {
public:
    // `simdgroups`: of a group of threads.
    Helpers(const Dialect& dialect, int simdgroups) : dialect_(dialect), simdgroups_(simdgroups) {}

    // The function's name; it will be written.
    std::string use(const HelperKey& key);
    std::string text() const;  // of all that are used

    // The expression for one step of a reduction other than argmin and argmax.
    std::string combined(loopir::Combiner combiner, DType type, const std::string& a, const std::string& b);

private:
    std::string definition(const HelperKey& key);
    std::string remainder_of_floats() const;
    std::string join(const HelperKey& key);
    std::string prefix(const HelperKey& key);
    std::string math_function(const HelperKey& key);
    std::string signature(const std::string& result, const HelperKey& key, const std::string& parameters) const;

    const Dialect& dialect_;
    int simdgroups_;
    std::map<HelperKey, std::string> used_;  // with their text
};

// The name without any text being written.
std::string helper_name(const Dialect& dialect, const HelperKey& key);

// How math functions are expanded.
loopir::MathTarget math_target(const Dialect& dialect);

// Unsigned type in which integers of `type` are added and shifted, so that they wrap.
DType wrapping_type(DType type);

}  // namespace topstitch::codegen
