// The loop IR: one kernel is one loop nest over typed scalars, closed and small.
// Back ends and the interpreter see only this; ops and the stitcher produce it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "loopir/index.h"
#include "topstitch/dtype.h"

namespace topstitch::loopir {

// Scalar instructions. Values have a compute type: bool, an integer type, float32 or float64. The
// 16-bit floats exist in memory only: a load widens to float32, a store rounds. Complex numbers are two
// float32 values. Integers wrap. Comparisons give bool.
// clang-format off: grouped by meaning
enum class ScalarOp : std::uint8_t {
    // Sources.
    constant,     // payload: integer or real
    index_value,  // payload: index; int64
    load,         // payload: buffer, index; args[0] = guard or none: where false, reads nothing and gives 0
    acc_read,     // payload: accumulator (and component: 1 = the index of argmax/argmin); what it holds at this point,
                  // also inside the loop that accumulates: so are running sums written
    // Arithmetic; operands and result of one type.
    add, sub, mul,
    div,   // floats: IEEE; integers: toward zero, x / 0 = 0, lowest / -1 wraps
    rem,   // sign of the dividend (C, fmod); integers: x rem 0 = 0
    neg, abs, fma,
    min, max,    // a NaN operand gives NaN
    fmin, fmax,  // a NaN operand is ignored
    floor, ceil, trunc, round_even, sqrt,
    copysign,    // magnitude of the first, sign of the second
    // Bits; and, or, xor, not also on bool.
    bit_and, bit_or, bit_xor, bit_not,
    shl, shr,    // shift counts outside [0, bits) give 0 (shr of a negative number: -1)
    popcount,
    // Comparisons: bool. With NaN all are false but `ne`.
    eq, ne, lt, le,
    select,  // args: bool, a, b
    // Conversions.
    cast,        // float to integer: toward zero, saturating, NaN gives 0; integers wrap; to bool: != 0
    round_to,    // float32 -> float32, rounded to the precision of payload `memory` (float16, bfloat16)
    bitcast,     // same size
    to_bits16,   // float32 -> uint16: the bits of payload `memory` (float16, bfloat16)
    from_bits16, // the inverse
    dot_pairs,   // two uint32 words of pairs of payload `memory`, low half first: the sum of the pairs' products;
                 // int16 -> int32, wrapping; bfloat16 -> float32, rounded as a target likes, which may take subnormal
                 // elements for 0
    // Math: float32 or float64; expanded into the above where the target has no instruction.
    exp, exp2, exp10, expm1, log, log2, log10, log1p,
    sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh,
    erf, erfc, rsqrt, cbrt, pow, atan2,
};
// clang-format on

// How a reduction combines; also what an accumulator starts from: 0, 1, the highest or lowest value (infinite for
// floats), for fmin and fmax of floats NaN (so that a reduction of NaNs alone is NaN), true, false.
enum class Combiner : std::uint8_t {
    sum,
    product,
    min,
    max,  // NaN wins
    fmin,
    fmax,  // NaN is ignored
    logical_and,
    logical_or,
    argmin,
    argmax,  // the value and its int64 position; the lowest position of equals, or of NaNs, wins
};

struct Instr {
    ScalarOp op = ScalarOp::constant;
    DType type = DType::float32;  // of the result
    ValueId args[3] = {no_value, no_value, no_value};
    // Payloads, as the op needs them.
    std::int64_t integer = 0;       // constant of bool or integer type (the bits); component of acc_read
    double real = 0;                // constant of float type
    std::int32_t slot = -1;         // buffer of load; accumulator of acc_read
    DType memory = DType::float32;  // round_to, to_bits16, from_bits16
    Index index;                    // index_value, load
};

// A buffer that the kernel reads or writes, or row-local scratch memory.
struct BufferParam {
    enum class Role : std::uint8_t { input, output, inout, local };
    std::string name;              // for people
    DType dtype = DType::float32;  // in memory; complex64 never occurs: it is passed as float32 pairs
    Role role = Role::input;
    Dim size;  // elements; for a local: per thread, times its vector lanes if it lives inside a vector loop
};

struct Accumulator {
    Combiner combiner = Combiner::sum;
    DType type = DType::float32;
};

struct Block;

// Evaluates instruction `value` here. Each instruction is evaluated by exactly one Let.
struct Let {
    ValueId value;
};
struct Store {
    std::int32_t buffer;
    Index index;
    ValueId value;
    ValueId guard = no_value;  // stores nothing where false
    bool streaming = false;    // the data is not read again soon: bypass the caches if possible
};
struct InitAcc {
    std::int32_t accumulator;
};
struct Accumulate {
    std::int32_t accumulator;
    ValueId value;
    ValueId position = no_value;  // argmin, argmax: int64
    ValueId guard = no_value;     // skipped where false
};
// On a matrix unit: the product of two packed blocks, rows by columns in tiles of 16, over `steps` groups of 16 words.
// A word holds neighbours along the sum, the first in its lowest bits: two bfloat16, or four bytes. A factor's element
// is the sum of `parts` bfloat16 numbers (see matrix_parts.h), of which each word has the same part; products of parts
// below the precision of float32 are left out.
struct MultiplyTiles {
    std::int32_t rows = -1, columns = -1;  // uint32: [step][part][row][word], [step][part][word][column]
    DType rows_type = DType::bfloat16;     // or int8, uint8: then both are
    DType columns_type = DType::bfloat16;
    Index rows_at, columns_at;  // where they begin
    std::int32_t sums = -1;     // float32 or, wrapping, int32: [row][column]
    Index sums_at;
    std::int64_t sums_row = 0;  // from one row to the next
    Index steps;                // of any value; none when it is not positive
    int row_tiles = 1, column_tiles = 1;
    int parts = 1;
    ValueId adds = no_value;   // where true, adds to the sums that are there
    ValueId plain = no_value;  // where true, some element has no parts: multiplies the elements themselves
};
struct Loop {
    VarId var;
    Dim extent;
    // Iterations from this one on do not run either: an index over what is known outside of the loop, of any value. It
    // cuts tiles off at the edge, and skips what is not needed.
    std::optional<Index> limit = std::nullopt;
    // The schedule. One parallel loop at most, and it is the outermost statement of the kernel.
    bool parallel = false;
    bool vector = false;      // iterations run in lanes; one vector loop at most on each path from the root
    int unroll = 1;           // iterations (of lanes) run together, for independent accumulators and register reuse
    std::vector<Block> body;  // exactly one (a vector only because Block is incomplete here)
};
using Stmt = std::variant<Let, Store, InitAcc, Accumulate, MultiplyTiles, Loop>;
struct Block {
    std::vector<Stmt> stmts;
};

inline constexpr std::int64_t matrix_tile = 16;   // rows and columns of a tile, and words of a step
constexpr std::int64_t matrix_word(DType type) {  // elements of a word
    return type == DType::bfloat16 ? 2 : 4;
}

struct LoopVarInfo {
    std::string name;
    Dim extent;
};

// SSA values in `instrs`; `body` says where each is evaluated. Symbolic Dims in extents, coefficients and
// sizes are arguments of the compiled kernel (see size_params).
struct Kernel {
    std::string name;
    std::vector<BufferParam> buffers;
    std::vector<LoopVarInfo> vars;
    std::vector<Accumulator> accumulators;
    std::vector<Instr> instrs;
    Block body;
};

// The distinct Dims that are not numbers: the size arguments of a compiled kernel. In order of first appearance in
// the body, then in the sizes of local buffers, then in those of the others (on which no code depends).
std::vector<Dim> size_params(const Kernel& kernel);

// Text for people and for golden tests. With `canonical`, names are left out and symbolic Dims are printed
// as p0, p1, ... in the order of size_params: equal text means equal machine code.
std::string print(const Kernel& kernel, bool canonical = false);

// InternalError naming the offending statement when an invariant does not hold (types, scopes, each value
// evaluated once and before use, accumulators initialised, one parallel loop, buffers' roles).
void verify(const Kernel& kernel);

struct ScalarOpInfo {
    const char* name;
    int arity;
    bool is_math;  // expand_math knows how to expand it
};
const ScalarOpInfo& info(ScalarOp op);
const char* name_of(Combiner combiner);

}  // namespace topstitch::loopir
