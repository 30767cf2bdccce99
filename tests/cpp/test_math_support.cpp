// The table of math functions with their references, and kernels of one instruction.
// See test_math_support.h.
#include "test_math_support.h"

#include <string>

#include "loopir/builder.h"

namespace topstitch::testing {

namespace {

using loopir::Kernel;
using loopir::ScalarOp;

// Of a generic lambda without captures, which becomes a function of either type.
template <typename F>
MathFunction unary(ScalarOp op, F function) {
    MathFunction result;
    result.op = op;
    result.wide = function;
    result.wider = function;
    return result;
}
template <typename F>
MathFunction binary(ScalarOp op, F function) {
    MathFunction result;
    result.op = op;
    result.wide2 = function;
    result.wider2 = function;
    return result;
}

// There is no std::exp10. 10^x = 10^n 10^(x - n), good to a few units of the wider type.
template <typename T>
T exp10(T x) {
    if (!(std::abs(x) < 1000)) return std::exp(x);
    const T whole = std::nearbyint(x);
    return std::pow(T(10), whole) * std::exp((x - whole) * static_cast<T>(2.302585092994045684017991454684364208L));
}

int count_instructions(const Kernel& kernel, const loopir::Block& block) {
    int count = 0;
    for (const loopir::Stmt& stmt : block.stmts) {
        if (const auto* loop = std::get_if<loopir::Loop>(&stmt)) {
            count += count_instructions(kernel, loop->body.front());
        } else if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            const ScalarOp op = kernel.instrs[static_cast<std::size_t>(let->value)].op;
            if (op != ScalarOp::constant && op != ScalarOp::load && op != ScalarOp::bitcast) ++count;
        }
    }
    return count;
}

}  // namespace

std::span<const MathFunction> math_functions() {
    static const std::vector<MathFunction> functions = {
        unary(ScalarOp::exp, [](auto x) { return std::exp(x); }),
        unary(ScalarOp::exp2, [](auto x) { return std::exp2(x); }),
        unary(ScalarOp::exp10, [](auto x) { return exp10(x); }),
        unary(ScalarOp::expm1, [](auto x) { return std::expm1(x); }),
        unary(ScalarOp::log, [](auto x) { return std::log(x); }),
        unary(ScalarOp::log2, [](auto x) { return std::log2(x); }),
        unary(ScalarOp::log10, [](auto x) { return std::log10(x); }),
        unary(ScalarOp::log1p, [](auto x) { return std::log1p(x); }),
        unary(ScalarOp::sin, [](auto x) { return std::sin(x); }),
        unary(ScalarOp::cos, [](auto x) { return std::cos(x); }),
        unary(ScalarOp::tan, [](auto x) { return std::tan(x); }),
        unary(ScalarOp::asin, [](auto x) { return std::asin(x); }),
        unary(ScalarOp::acos, [](auto x) { return std::acos(x); }),
        unary(ScalarOp::atan, [](auto x) { return std::atan(x); }),
        unary(ScalarOp::sinh, [](auto x) { return std::sinh(x); }),
        unary(ScalarOp::cosh, [](auto x) { return std::cosh(x); }),
        unary(ScalarOp::tanh, [](auto x) { return std::tanh(x); }),
        unary(ScalarOp::asinh, [](auto x) { return std::asinh(x); }),
        unary(ScalarOp::acosh, [](auto x) { return std::acosh(x); }),
        unary(ScalarOp::atanh, [](auto x) { return std::atanh(x); }),
        unary(ScalarOp::erf, [](auto x) { return std::erf(x); }),
        unary(ScalarOp::erfc, [](auto x) { return std::erfc(x); }),
        unary(ScalarOp::rsqrt, [](auto x) { return 1 / std::sqrt(x); }),
        unary(ScalarOp::cbrt, [](auto x) { return std::cbrt(x); }),
        binary(ScalarOp::pow, [](auto x, auto y) { return std::pow(x, y); }),
        binary(ScalarOp::atan2, [](auto x, auto y) { return std::atan2(x, y); }),
    };
    return functions;
}

Kernel elementwise(ScalarOp op, DType type, std::int64_t count, bool vector) {
    loopir::Builder builder;
    const bool two = loopir::info(op).arity == 2;
    const int x = builder.add_buffer({"x", type, loopir::BufferParam::Role::input, count});
    const int y = two ? builder.add_buffer({"y", type, loopir::BufferParam::Role::input, count}) : x;
    const int out = builder.add_buffer({"out", type, loopir::BufferParam::Role::output, count});
    const loopir::Index i = builder.begin_loop("i", count);
    const loopir::ValueId first = builder.load(x, i);
    builder.store(out, i, builder.op(op, first, two ? builder.load(y, i) : loopir::no_value));
    builder.end_loop();
    Kernel kernel = builder.finish(loopir::info(op).name);
    if (vector) std::get<loopir::Loop>(kernel.body.stmts.back()).vector = true;
    return kernel;
}

int instruction_count(const Kernel& expanded) {
    return count_instructions(expanded, expanded.body);
}

}  // namespace topstitch::testing
