// Comparison, logic and bits: binary operations without a derivative.
// Comparisons and logic give bool; bitwise operations keep the dtype.
#include "ops/elementwise.h"
#include "ops/families.h"

namespace topstitch::ops {

using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// Order needs numbers: false < true by way of uint8.
ValueId ordered(ElementContext& c, DType dtype, const Value& x) {
    return dtype == DType::boolean ? c.b.cast(x.re, DType::uint8) : x.re;
}

BinaryScalar order(ScalarOp op, bool swapped) {
    return [=](ElementContext& c, DType dtype, const Value& a, const Value& b) {
        const ValueId x = ordered(c, dtype, a);
        const ValueId y = ordered(c, dtype, b);
        return Value{swapped ? c.b.op(op, y, x) : c.b.op(op, x, y)};
    };
}

// Equality part by part, combined over the parts.
BinaryScalar equality(ScalarOp op, ScalarOp combine) {
    return [=](ElementContext& c, DType, const Value& a, const Value& b) {
        const ValueId re = c.b.op(op, a.re, b.re);
        return Value{a.is_complex() ? c.b.op(combine, re, c.b.op(op, a.im, b.im)) : re};
    };
}

void add_comparisons(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, const char* onnx, DTypes dtypes, bool commutative,
                            const char* doc, BinaryScalar scalar) {
        ops.push_back(binary_op({.name = name,
                                 .mpsgraph = {mpsgraph},
                                 .onnx = onnx,
                                 .dtypes = dtypes,
                                 .result = ResultType::boolean,
                                 .commutative = commutative,
                                 .doc = doc},
                                std::move(scalar), NotDifferentiable{"its result is bool"}));
    };
    const DTypes sortable = bools | reals;
    add("equal", "equal", "Equal", anything, true, "a == b, element by element; NaN equals nothing.",
        equality(ScalarOp::eq, ScalarOp::bit_and));
    add("not_equal", "notEqual", "", anything, true, "a != b, element by element; NaN differs from everything.",
        equality(ScalarOp::ne, ScalarOp::bit_or));
    add("less", "lessThan", "Less", sortable, false, "a < b; false with NaN. false comes before true.",
        order(ScalarOp::lt, false));
    add("less_equal", "lessThanOrEqualTo", "LessOrEqual", sortable, false,
        "a <= b; false with NaN. false comes before true.", order(ScalarOp::le, false));
    add("greater", "greaterThan", "Greater", sortable, false, "a > b; false with NaN. false comes before true.",
        order(ScalarOp::lt, true));
    add("greater_equal", "greaterThanOrEqualTo", "GreaterOrEqual", sortable, false,
        "a >= b; false with NaN. false comes before true.", order(ScalarOp::le, true));
}

void add_logic(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, const char* onnx, ScalarOp op, bool inverted,
                            const std::string& doc) {
        ops.push_back(binary_op(
            {.name = name,
             .mpsgraph = {mpsgraph},
             .onnx = onnx,
             .dtypes = anything,
             .result = ResultType::boolean,
             .commutative = true,
             .doc = doc + " Numbers count as true unless they are 0; NaN counts as true."},
            [=](ElementContext& c, DType, const Value& a, const Value& b) {
                const ValueId y = c.b.op(op, truth(c, a), truth(c, b));
                return Value{inverted ? negated(c, y) : y};
            },
            NotDifferentiable{"its result is bool"}));
    };
    add("logical_and", "logicalAND", "And", ScalarOp::bit_and, false, "True where both are true.");
    add("logical_or", "logicalOR", "Or", ScalarOp::bit_or, false, "True where at least one is true.");
    add("logical_xor", "logicalXOR", "Xor", ScalarOp::bit_xor, false, "True where exactly one is true.");
    add("logical_nand", "logicalNAND", "", ScalarOp::bit_and, true, "False where both are true.");
    add("logical_nor", "logicalNOR", "", ScalarOp::bit_or, true, "False where at least one is true.");
    add("logical_xnor", "logicalXNOR", "", ScalarOp::bit_xor, true, "True where both are true or both false.");
}

void add_bits(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, const char* onnx, DTypes dtypes, bool commutative,
                            ScalarOp op, const char* doc) {
        ops.push_back(binary_op({.name = name,
                                 .mpsgraph = {mpsgraph},
                                 .onnx = onnx,
                                 .dtypes = dtypes,
                                 .commutative = commutative,
                                 .doc = doc},
                                instruction2(op),
                                NotDifferentiable{"it works on the bits of integers, which do not vary continuously"}));
    };
    const DTypes any_bits = bools | integers;
    add("bitwise_and", "bitwiseAND", "BitwiseAnd", any_bits, true, ScalarOp::bit_and,
        "The bits set in both; for bool the logical and.");
    add("bitwise_or", "bitwiseOR", "BitwiseOr", any_bits, true, ScalarOp::bit_or,
        "The bits set in at least one; for bool the logical or.");
    add("bitwise_xor", "bitwiseXOR", "BitwiseXor", any_bits, true, ScalarOp::bit_xor,
        "The bits set in exactly one; for bool the exclusive or.");
    add("left_shift", "bitwiseLeftShift", "", integers, false, ScalarOp::shl,
        "The bits of a moved b places up, zeros coming in. A count below 0, or not below the number of bits, gives 0.");
    add("right_shift", "bitwiseRightShift", "", integers, false, ScalarOp::shr,
        "The bits of a moved b places down; for signed dtypes copies of the sign bit come in, so that this is floor "
        "division by 2^b. A count below 0, or not below the number of bits, gives 0, or -1 for a negative a.");
}

}  // namespace

std::vector<OpDef> binary_logic_ops() {
    std::vector<OpDef> ops;
    add_comparisons(ops);
    add_logic(ops);
    add_bits(ops);
    return ops;
}

}  // namespace topstitch::ops
