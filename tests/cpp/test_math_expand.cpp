// The pass expand_math itself: what it replaces, what it leaves alone, and how much it emits.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "loopir/builder.h"
#include "loopir/interpret.h"
#include "test_math_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using namespace topstitch::loopir;

namespace {

void collect(const Block& block, std::vector<ValueId>& values) {
    for (const Stmt& stmt : block.stmts) {
        if (const auto* let = std::get_if<Let>(&stmt)) values.push_back(let->value);
        if (const auto* loop = std::get_if<Loop>(&stmt)) collect(loop->body.front(), values);
    }
}

// How many evaluated instructions are `op`.
int count(const Kernel& kernel, ScalarOp op) {
    std::vector<ValueId> values;
    collect(kernel.body, values);
    return static_cast<int>(std::count_if(values.begin(), values.end(), [&](ValueId id) {
        return kernel.instrs[static_cast<std::size_t>(id)].op == op;
    }));
}

bool has_math(const Kernel& kernel) {
    return std::any_of(kernel.instrs.begin(), kernel.instrs.end(), [](const Instr& i) { return info(i.op).is_math; });
}

int expanded_count(ScalarOp op, DType type) {
    return instruction_count(expand_math(elementwise(op, type, 8), {true}));
}

// y[r] = sum over j of exp(x[r, j] - x[r, 0])
Kernel sum_of_exp(std::int64_t rows, std::int64_t cols) {
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, BufferParam::Role::input, rows * cols});
    const int y = b.add_buffer({"y", DType::float32, BufferParam::Role::output, rows});
    const int sum = b.add_accumulator(Combiner::sum, DType::float32);
    const Index r = b.begin_loop("r", rows);
    const ValueId first = b.load(x, r * cols);
    b.init_acc(sum);
    const Index j = b.begin_loop("j", cols);
    b.accumulate(sum, b.op(ScalarOp::exp, b.sub(b.load(x, r * cols + j), first)));
    b.end_loop();
    b.store(y, r, b.op(ScalarOp::log, b.acc_read(sum)));
    b.end_loop();
    return b.finish("logsumexp");
}

}  // namespace

TEST_CASE("every math function expands to a valid kernel without math") {
    for (const MathFunction& function : math_functions()) {
        for (const DType type : {DType::float32, DType::float64}) {
            for (const bool fma : {true, false}) {
                CAPTURE(function.name());
                const Kernel expanded = expand_math(elementwise(function.op, type, 8), {fma});
                CHECK_FALSE(has_math(expanded));
                CHECK_NOTHROW(verify(expanded));
                if (!fma) CHECK(count(expanded, ScalarOp::fma) == 0);
            }
        }
    }
}

TEST_CASE("the table of functions is complete") {
    int known = 0;
    for (int op = 0; op <= static_cast<int>(ScalarOp::atan2); ++op) {
        if (info(static_cast<ScalarOp>(op)).is_math) ++known;
    }
    CHECK(known == static_cast<int>(math_functions().size()));
}

TEST_CASE("a kernel without math is returned as it is") {
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, BufferParam::Role::input, 4});
    const int y = b.add_buffer({"y", DType::float32, BufferParam::Role::output, 4});
    const Index i = b.begin_loop("i", 4);
    const ValueId v = b.load(x, i);
    b.store(y, i, b.op(ScalarOp::fma, v, v, v));
    b.end_loop();
    const Kernel kernel = b.finish("plain");
    CHECK(print(expand_math(kernel, {true})) == print(kernel));
    CHECK(print(expand_math(kernel, {false})) == print(kernel));  // an fma of the user's stays
}

TEST_CASE("values keep their numbers and may be used several times") {
    Builder b;
    const int x = b.add_buffer({"x", DType::float64, BufferParam::Role::input, 3});
    const int y = b.add_buffer({"y", DType::float64, BufferParam::Role::output, 3});
    const int z = b.add_buffer({"z", DType::float64, BufferParam::Role::output, 3});
    const Index i = b.begin_loop("i", 3);
    const ValueId v = b.load(x, i);
    const ValueId e = b.op(ScalarOp::exp, v);
    b.store(y, i, b.mul(e, e));
    b.store(z, i, b.op(ScalarOp::log, e));
    b.end_loop();
    const Kernel kernel = b.finish("twice");
    const Kernel expanded = expand_math(kernel, {true});
    CHECK_NOTHROW(verify(expanded));
    CHECK(expanded.instrs[static_cast<std::size_t>(e)].type == DType::float64);

    std::vector<double> in = {-1.5, 0.25, 3};
    std::vector<double> squares(3);
    std::vector<double> logs(3);
    std::vector<void*> buffers = {in.data(), squares.data(), logs.data()};
    interpret(expanded, buffers, {});
    for (std::size_t k = 0; k < 3; ++k) {
        CHECK(squares[k] == doctest::Approx(std::exp(2 * in[k])).epsilon(1e-14));
        CHECK(logs[k] == doctest::Approx(in[k]).epsilon(1e-14));
    }
}

TEST_CASE("math inside and after a reduction loop") {
    const std::int64_t rows = 3;
    const std::int64_t cols = 7;
    const Kernel kernel = expand_math(sum_of_exp(rows, cols), {true});
    CHECK_NOTHROW(verify(kernel));
    std::vector<float> x(static_cast<std::size_t>(rows * cols));
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 5) * 0.5f;
    std::vector<float> y(static_cast<std::size_t>(rows));
    std::vector<void*> buffers = {x.data(), y.data()};
    interpret(kernel, buffers, {});
    for (std::size_t r = 0; r < y.size(); ++r) {
        double sum = 0;
        for (std::size_t j = 0; j < 7; ++j)
            sum += std::exp(static_cast<double>(x[r * 7 + j]) - static_cast<double>(x[r * 7]));
        CHECK(y[r] == doctest::Approx(std::log(sum)).epsilon(1e-6));
    }
}

TEST_CASE("sin and cos of one value share the reduction") {
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, BufferParam::Role::input, 4});
    const int y = b.add_buffer({"y", DType::float32, BufferParam::Role::output, 4});
    const Index i = b.begin_loop("i", 4);
    const ValueId v = b.load(x, i);
    b.store(y, i, b.add(b.op(ScalarOp::sin, v), b.op(ScalarOp::cos, v)));
    b.end_loop();
    const int both = instruction_count(expand_math(b.finish("both"), {true}));
    CHECK(both < expanded_count(ScalarOp::sin, DType::float32) + 12);
}

TEST_CASE("the hot functions stay short") {
    CHECK(expanded_count(ScalarOp::exp, DType::float32) <= 18);
    CHECK(expanded_count(ScalarOp::log, DType::float32) <= 28);
    CHECK(expanded_count(ScalarOp::erf, DType::float32) <= 28);
    CHECK(expanded_count(ScalarOp::tanh, DType::float32) <= 28);
    CHECK(expanded_count(ScalarOp::sin, DType::float32) <= 42);
}

TEST_CASE("the hot float32 functions compute in float32") {
    for (const ScalarOp op :
         {ScalarOp::exp, ScalarOp::exp2, ScalarOp::expm1, ScalarOp::log, ScalarOp::log1p, ScalarOp::erf, ScalarOp::tanh,
          ScalarOp::sinh, ScalarOp::cosh, ScalarOp::rsqrt, ScalarOp::cbrt}) {
        for (const Instr& instr : expand_math(elementwise(op, DType::float32, 8), {true}).instrs) {
            CHECK(instr.type != DType::float64);
        }
    }
}
