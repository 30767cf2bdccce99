// Random programs: built with folding, sharing and hoisting and run by the interpreter, against the same programs
// evaluated statement by statement. The seed of a failing case is printed.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "loopir/builder.h"
#include "loopir/evaluate.h"
#include "loopir/interpret.h"
#include "loopir/scalar_op.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Random = std::mt19937;
using Role = BufferParam::Role;

std::size_t pick(Random& random, std::size_t n) {
    return random() % n;
}

template <typename T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& choices) {
    return choices[pick(random, N)];
}

// --- Expressions of all types, over one element of each input.

constexpr std::array types = {DType::boolean, DType::int8,   DType::uint8,   DType::int32,
                              DType::int64,   DType::uint64, DType::float32, DType::float64};

bool is_float(DType type) {
    return is_floating(type);
}

struct Tree {
    Instr instr;  // op, type, memory, constants; slot: the input of a load
    std::vector<Tree> args;
};

Scalar random_scalar(Random& random, DType type) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr std::array reals = {0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.25, 3.0, 1e30, -7.5, inf, -inf, std::nan("")};
    constexpr std::array<std::int64_t, 10> wholes = {0, 1, -1, 2, 3, 7, -128, 127, 31, 255};
    if (is_float(type)) return scalar_from_double(one_of(random, reals), type);
    return scalar_from_int(one_of(random, wholes), type);
}

Tree random_tree(Random& random, DType type, int depth);

Tree node(Random& random, ScalarOp op, DType type, DType operand, int count, int depth) {
    Tree tree;
    tree.instr.op = op;
    tree.instr.type = type;
    for (int k = 0; k < count; ++k) {
        // Often the same operand twice, which is where identities lurk.
        if (k > 0 && pick(random, 4) == 0) {
            tree.args.push_back(tree.args[0]);
        } else {
            tree.args.push_back(random_tree(random, operand, depth - 1));
        }
    }
    return tree;
}

Tree random_leaf(Random& random, DType type) {
    Tree tree;
    if (pick(random, 2) == 0) {
        tree.instr = constant_instr(random_scalar(random, type), type);
        return tree;
    }
    tree.instr.op = ScalarOp::load;
    tree.instr.type = type;
    for (std::size_t k = 0; k < types.size(); ++k) {
        if (types[k] == type) tree.instr.slot = static_cast<std::int32_t>(2 * k + pick(random, 2));
    }
    return tree;
}

Tree random_conversion(Random& random, DType type, int depth) {
    if (type == DType::float32 && pick(random, 2) == 0) {
        Tree tree = node(random, ScalarOp::round_to, type, type, 1, depth);
        tree.instr.memory = pick(random, 2) == 0 ? DType::float16 : DType::bfloat16;
        return tree;
    }
    if (type == DType::int32 && pick(random, 3) == 0) {
        return node(random, ScalarOp::bitcast, type, DType::float32, 1, depth);
    }
    return node(random, ScalarOp::cast, type, one_of(random, types), 1, depth);
}

Tree random_tree(Random& random, DType type, int depth) {
    if (depth == 0 || pick(random, 7) == 0) return random_leaf(random, type);
    const std::size_t kind = pick(random, 6);
    if (kind == 0) return random_conversion(random, type, depth);
    if (kind == 1) {
        Tree tree = node(random, ScalarOp::select, type, type, 2, depth);
        tree.args.insert(tree.args.begin(), random_tree(random, DType::boolean, depth - 1));
        return tree;
    }
    if (type == DType::boolean && kind < 4) {
        constexpr std::array ops = {ScalarOp::eq, ScalarOp::ne, ScalarOp::lt, ScalarOp::le};
        return node(random, one_of(random, ops), type, one_of(random, types), 2, depth);
    }
    constexpr std::array bits = {ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor, ScalarOp::bit_not,
                                 ScalarOp::shl,     ScalarOp::shr,    ScalarOp::popcount};
    constexpr std::array numbers = {ScalarOp::add, ScalarOp::sub,  ScalarOp::mul, ScalarOp::div,
                                    ScalarOp::rem, ScalarOp::neg,  ScalarOp::abs, ScalarOp::min,
                                    ScalarOp::max, ScalarOp::fmin, ScalarOp::fmax};
    constexpr std::array floats = {ScalarOp::floor, ScalarOp::ceil, ScalarOp::trunc,   ScalarOp::round_even,
                                   ScalarOp::sqrt,  ScalarOp::fma,  ScalarOp::copysign};
    ScalarOp op = one_of(random, numbers);
    if (type == DType::boolean)
        op = bits[pick(random, 4)];
    else if (is_float(type) && kind == 2)
        op = one_of(random, floats);
    else if (!is_float(type) && kind < 4)
        op = one_of(random, bits);
    return node(random, op, type, type, info(op).arity, depth);
}

ValueId build(Builder& b, const Tree& tree, const Index& at) {
    const Instr& instr = tree.instr;
    std::array<ValueId, 3> args = {no_value, no_value, no_value};
    for (std::size_t k = 0; k < tree.args.size(); ++k) args[k] = build(b, tree.args[k], at);
    switch (instr.op) {
        case ScalarOp::constant:
            return is_float(instr.type) ? b.constant(instr.real, instr.type)
                                        : b.constant_int(instr.integer, instr.type);
        case ScalarOp::load:
            return b.load(instr.slot, at);
        case ScalarOp::cast:
            return b.cast(args[0], instr.type);
        case ScalarOp::bitcast:
            return b.bitcast(args[0], instr.type);
        case ScalarOp::round_to:
            return b.round_to(args[0], instr.memory);
        default:
            return b.op(instr.op, args[0], args[1], args[2]);
    }
}

// `inputs`: the values of each input at the element in question.
Scalar evaluate(const Tree& tree, const std::vector<Scalar>& inputs) {
    const Instr& instr = tree.instr;
    if (instr.op == ScalarOp::constant) return constant_scalar(instr);
    if (instr.op == ScalarOp::load) return inputs[static_cast<std::size_t>(instr.slot)];
    std::array<Scalar, 3> args;
    for (std::size_t k = 0; k < tree.args.size(); ++k) args[k] = evaluate(tree.args[k], inputs);
    return evaluate_scalar(instr, tree.args[0].instr.type, args);
}

bool is_nan(Scalar value, DType type) {
    return is_float(type) && std::isnan(scalar_to_double(value, type));
}

// --- Programs: loops over statements, in float64.

struct Position {
    std::array<std::int64_t, 3> coefficients{};  // of the variables of the open loops
    std::int64_t constant = 0;
};

struct Expression {
    enum class Kind { constant, position, load, add, sub, max, select } kind = Kind::constant;
    double number = 0;
    int buffer = 0;
    Position at;
    std::vector<Expression> args;
};

struct Statement {
    enum class Kind { loop, store, sum } kind = Kind::store;
    std::int64_t extent = 0;      // loop, sum
    std::vector<Statement> body;  // loop
    int buffer = 0;               // store and sum: where the result goes
    Position at;
    std::vector<Expression> value;  // one
};

constexpr std::int64_t buffer_size = 5;
constexpr int buffer_count = 4;  // input, inout, local, output

Position random_position(Random& random, std::size_t depth) {
    Position at;
    for (std::size_t k = 0; k < depth; ++k) at.coefficients[k] = static_cast<std::int64_t>(pick(random, 3));
    at.constant = static_cast<std::int64_t>(pick(random, 3));
    return at;
}

Expression random_expression(Random& random, std::size_t depth, int height) {
    using Kind = Expression::Kind;
    Expression e;
    if (height == 0 || pick(random, 5) == 0) {
        e.kind = std::array{Kind::constant, Kind::position, Kind::load, Kind::load, Kind::load}[pick(random, 5)];
        e.number = static_cast<double>(pick(random, 3));
        e.buffer = static_cast<int>(pick(random, buffer_count));
        e.at = random_position(random, depth);
        return e;
    }
    e.kind = std::array{Kind::add, Kind::sub, Kind::max, Kind::select}[pick(random, 4)];
    const int count = e.kind == Kind::select ? 3 : 2;
    for (int k = 0; k < count; ++k) e.args.push_back(random_expression(random, depth, height - 1));
    return e;
}

std::vector<Statement> random_block(Random& random, std::size_t depth) {
    std::vector<Statement> block(1 + pick(random, 4));
    for (Statement& s : block) {
        const std::size_t kind = pick(random, 5);
        s.extent = 1 + static_cast<std::int64_t>(pick(random, 3));
        if (kind < 2 && depth < 3) {
            s.kind = Statement::Kind::loop;
            s.body = random_block(random, depth + 1);
            continue;
        }
        const bool sum = kind == 2 && depth < 3;
        s.kind = sum ? Statement::Kind::sum : Statement::Kind::store;
        s.buffer = 1 + static_cast<int>(pick(random, buffer_count - 1));
        s.at = random_position(random, depth);
        s.value.push_back(random_expression(random, sum ? depth + 1 : depth, 3));
    }
    return block;
}

class Reference {
public:
    std::array<std::array<double, buffer_size>, buffer_count> memory{};

    void run(const std::vector<Statement>& block) {
        for (const Statement& s : block) {
            switch (s.kind) {
                case Statement::Kind::loop:
                    vars_.push_back(0);
                    for (; vars_.back() < s.extent; ++vars_.back()) run(s.body);
                    vars_.pop_back();
                    break;
                case Statement::Kind::store:
                    cell(s.buffer, s.at) = value(s.value[0]);
                    break;
                case Statement::Kind::sum: {
                    double total = 0;
                    vars_.push_back(0);
                    for (; vars_.back() < s.extent; ++vars_.back()) total += value(s.value[0]);
                    vars_.pop_back();
                    cell(s.buffer, s.at) = total;
                    break;
                }
            }
        }
    }

private:
    std::int64_t position(const Position& at) const {
        std::int64_t sum = at.constant;
        for (std::size_t k = 0; k < vars_.size(); ++k) sum += at.coefficients[k] * vars_[k];
        return sum % buffer_size;
    }

    double& cell(int buffer, const Position& at) {
        return memory[static_cast<std::size_t>(buffer)][static_cast<std::size_t>(position(at))];
    }

    double value(const Expression& e) {
        using Kind = Expression::Kind;
        switch (e.kind) {
            case Kind::constant:
                return e.number;
            case Kind::position:
                return static_cast<double>(position(e.at));
            case Kind::load:
                return cell(e.buffer, e.at);
            case Kind::add:
                return value(e.args[0]) + value(e.args[1]);
            case Kind::sub:
                return value(e.args[0]) - value(e.args[1]);
            case Kind::max:
                return std::max(value(e.args[0]), value(e.args[1]));
            case Kind::select:
                return value(e.args[0]) < value(e.args[1]) ? value(e.args[1]) : value(e.args[2]);
        }
        return 0;
    }

    std::vector<std::int64_t> vars_;
};

class Lowering {
public:
    explicit Lowering(Builder& b) : b_(b) {}

    void run(const std::vector<Statement>& block) {
        for (const Statement& s : block) {
            switch (s.kind) {
                case Statement::Kind::loop:
                    vars_.push_back(b_.begin_loop("i", s.extent));
                    run(s.body);
                    end_loop();
                    break;
                case Statement::Kind::store:
                    b_.store(s.buffer, position(s.at), value(s.value[0]));
                    break;
                case Statement::Kind::sum: {
                    const int total = b_.add_accumulator(Combiner::sum, DType::float64);
                    b_.init_acc(total);
                    vars_.push_back(b_.begin_loop("j", s.extent));
                    b_.accumulate(total, value(s.value[0]));
                    end_loop();
                    b_.store(s.buffer, position(s.at), b_.acc_read(total));
                    break;
                }
            }
        }
    }

private:
    void end_loop() {
        b_.end_loop();
        vars_.pop_back();
    }

    Index position(const Position& at) const {
        Index sum = at.constant;
        for (std::size_t k = 0; k < vars_.size(); ++k) sum = sum + vars_[k] * at.coefficients[k];
        return mod(sum, buffer_size);
    }

    ValueId value(const Expression& e) {
        using Kind = Expression::Kind;
        std::array<ValueId, 3> args{};
        for (std::size_t k = 0; k < e.args.size(); ++k) args[k] = value(e.args[k]);
        switch (e.kind) {
            case Kind::constant:
                return b_.constant(e.number, DType::float64);
            case Kind::position:
                return b_.cast(b_.index_value(position(e.at)), DType::float64);
            case Kind::load:
                return b_.load(e.buffer, position(e.at));
            case Kind::add:
                return b_.add(args[0], args[1]);
            case Kind::sub:
                return b_.sub(args[0], args[1]);
            case Kind::max:
                return b_.op(ScalarOp::max, args[0], args[1]);
            case Kind::select:
                return b_.select(b_.op(ScalarOp::lt, args[0], args[1]), args[1], args[2]);
        }
        return no_value;
    }

    Builder& b_;
    std::vector<Index> vars_;
};

}  // namespace

TEST_CASE("random expressions fold to what they are") {
    constexpr std::size_t elements = 6;
    for (unsigned seed = 0; seed < 3000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        // Two inputs of each type, all holding edge values.
        Builder b;
        std::vector<std::vector<std::byte>> memory;
        std::vector<std::vector<Scalar>> inputs(elements);
        for (DType type : types) {
            for (int copy = 0; copy < 2; ++copy) {
                b.add_buffer({"", type, Role::input, static_cast<std::int64_t>(elements)});
                memory.emplace_back(elements * size_of(type));
                for (std::size_t k = 0; k < elements; ++k) {
                    const Scalar value = random_scalar(random, type);
                    inputs[k].push_back(value);
                    // Little-endian: the low bytes come first.
                    std::memcpy(memory.back().data() + k * size_of(type), &value.bits, size_of(type));
                }
            }
        }
        const DType type = one_of(random, types);
        const Tree tree = random_tree(random, type, 4);
        const int out = b.add_buffer({"", type, Role::output, static_cast<std::int64_t>(elements)});
        const Index i = b.begin_loop("i", static_cast<std::int64_t>(elements));
        b.store(out, i, build(b, tree, i));
        b.end_loop();
        const Kernel kernel = b.finish("random");
        CAPTURE(print(kernel));
        std::vector<std::byte> result(elements * size_of(type));
        std::vector<void*> pointers;
        for (std::vector<std::byte>& bytes : memory) pointers.push_back(bytes.data());
        pointers.push_back(result.data());
        interpret(kernel, pointers, {});
        for (std::size_t k = 0; k < elements; ++k) {
            Scalar actual;
            std::memcpy(&actual.bits, result.data() + k * size_of(type), size_of(type));
            Scalar expected = evaluate(tree, inputs[k]);
            if (is_nan(expected, type)) {
                REQUIRE(is_nan(actual, type));
                continue;
            }
            if (size_of(type) < 8) expected.bits &= (std::uint64_t{1} << (8 * size_of(type))) - 1;
            REQUIRE(actual.bits == expected.bits);
        }
    }
}

TEST_CASE("random programs keep the order of reads and writes") {
    for (unsigned seed = 0; seed < 3000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        const std::vector<Statement> program = random_block(random, 0);
        Reference expected;
        for (auto& buffer : expected.memory) {
            for (double& cell : buffer) cell = static_cast<double>(pick(random, 10));
        }
        expected.memory[2].fill(1);  // the local buffer
        auto actual = expected.memory;
        expected.run(program);

        Builder b;
        for (Role role : {Role::input, Role::inout, Role::local, Role::output}) {
            b.add_buffer({"", DType::float64, role, buffer_size});
        }
        const Index i = b.begin_loop("i", buffer_size);
        b.store(2, i, b.constant(1, DType::float64));
        b.end_loop();
        Lowering(b).run(program);
        const Kernel kernel = b.finish("random");
        CAPTURE(print(kernel));
        std::vector<void*> pointers = {actual[0].data(), actual[1].data(), actual[3].data()};
        interpret(kernel, pointers, {});
        for (std::size_t buffer : {0, 1, 3}) REQUIRE(actual[buffer] == expected.memory[buffer]);
    }
}
