// The interpreter: walks the loop nest one iteration at a time, with every access checked.
// Sizes are looked up once, beforehand, so that only numbers are left in the inner loops.
#include "loopir/interpret.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "loopir/evaluate.h"
#include "loopir/matrix_parts.h"
#include "loopir/print.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

// An Index with numbers for its sizes.
struct FlatIndex {
    struct Part {
        std::int64_t coefficient = 0;
        IndexTerm::Kind kind = IndexTerm::Kind::var;
        std::int32_t id = -1;                    // of the variable or value
        std::int64_t divisor = 1;                // floor_div, mod
        std::shared_ptr<const FlatIndex> inner;  // floor_div, mod
    };
    std::int64_t constant = 0;
    std::vector<Part> parts;
};

struct Code;

struct LetStep {
    const Stmt* stmt;
    const Instr* instr;
    ValueId id;
    DType operand;  // type of the first operand, if there is one
    FlatIndex index;
};
struct StoreStep {
    const Stmt* stmt;
    const Store* store;
    FlatIndex index;
};
struct InitStep {
    std::int32_t accumulator;
};
struct AccumulateStep {
    const Accumulate* step;
};
struct ProductStep {
    const Stmt* stmt;
    const MultiplyTiles* product;
    FlatIndex rows_at, columns_at, sums_at, steps;
};
struct LoopStep {
    VarId var;
    std::int64_t extent;
    std::optional<FlatIndex> limit;
    std::vector<Code> body;
};
using Step = std::variant<LetStep, StoreStep, InitStep, AccumulateStep, ProductStep, LoopStep>;
struct Code {
    std::vector<Step> steps;
};

struct Memory {
    std::byte* data = nullptr;
    std::int64_t size = -1;  // elements; -1 when it cannot be told
    // Scratch memory belongs to us, and reading what was never written is a defect of the kernel.
    std::vector<std::byte> scratch;
    std::vector<bool> written;
};

struct AccState {
    Scalar value;
    std::int64_t position = 0;
    bool empty = true;
};

template <typename T>
Scalar read_as(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return Scalar::of(value);
}

template <typename T>
void write_as(std::byte* to, Scalar scalar) {
    const T value = scalar.as<T>();
    std::memcpy(to, &value, sizeof value);
}

std::uint16_t bits16(const std::byte* from) {
    return read_as<std::uint16_t>(from).as<std::uint16_t>();
}

Scalar read_element(const std::byte* from, DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return Scalar::of(*from != std::byte{0});
        case DType::int8:
            return read_as<std::int8_t>(from);
        case DType::int16:
            return read_as<std::int16_t>(from);
        case DType::int32:
            return read_as<std::int32_t>(from);
        case DType::int64:
            return read_as<std::int64_t>(from);
        case DType::uint8:
            return read_as<std::uint8_t>(from);
        case DType::uint16:
            return read_as<std::uint16_t>(from);
        case DType::uint32:
            return read_as<std::uint32_t>(from);
        case DType::uint64:
            return read_as<std::uint64_t>(from);
        case DType::float16:
            return Scalar::of(half_to_float(bits16(from)));
        case DType::bfloat16:
            return Scalar::of(bfloat_to_float(bits16(from)));
        case DType::float32:
            return read_as<float>(from);
        case DType::float64:
            return read_as<double>(from);
        case DType::complex64:
            break;
    }
    throw InternalError("interpret: complex numbers are passed as pairs of float32");
}

void write_element(std::byte* to, DType dtype, Scalar value) {
    switch (dtype) {
        case DType::boolean:
        case DType::uint8:
            return write_as<std::uint8_t>(to, value);
        case DType::int8:
            return write_as<std::int8_t>(to, value);
        case DType::int16:
            return write_as<std::int16_t>(to, value);
        case DType::int32:
            return write_as<std::int32_t>(to, value);
        case DType::int64:
            return write_as<std::int64_t>(to, value);
        case DType::uint16:
            return write_as<std::uint16_t>(to, value);
        case DType::uint32:
            return write_as<std::uint32_t>(to, value);
        case DType::uint64:
            return write_as<std::uint64_t>(to, value);
        case DType::float16:
            return write_as<std::uint16_t>(to, Scalar::of(float_to_half(value.as<float>())));
        case DType::bfloat16:
            return write_as<std::uint16_t>(to, Scalar::of(float_to_bfloat(value.as<float>())));
        case DType::float32:
            return write_as<float>(to, value);
        case DType::float64:
            return write_as<double>(to, value);
        case DType::complex64:
            break;
    }
    throw InternalError("interpret: complex numbers are passed as pairs of float32");
}

// Quotient and remainder rounded down, of a positive divisor.
std::int64_t floor_quotient(std::int64_t a, std::int64_t divisor) {
    return a / divisor - (a % divisor < 0 ? 1 : 0);
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t divisor) {
    const std::int64_t rest = a % divisor;
    return rest < 0 ? rest + divisor : rest;
}

class Interpreter {
public:
    Interpreter(const Kernel& kernel, std::span<void* const> buffers, std::span<const std::int64_t> sizes)
        : kernel_(kernel),
          params_(size_params(kernel)),
          sizes_(sizes),
          values_(kernel.instrs.size()),
          vars_(kernel.vars.size()),
          accumulators_(kernel.accumulators.size()) {
        if (sizes.size() != params_.size()) {
            throw InternalError(concat("interpret: kernel ", kernel.name, " takes ", params_.size(),
                                       " sizes, but received ", sizes.size()));
        }
        attach(buffers);
    }

    void run() { run(prepare(kernel_.body)); }

private:
    // --- Preparation: sizes become numbers.

    std::int64_t number(const Dim& dim) const {
        if (dim.is_known()) return dim.value();
        const auto place = std::find(params_.begin(), params_.end(), dim);
        if (place == params_.end()) throw InternalError(concat("interpret: the size ", dim.str(), " is not known"));
        return sizes_[static_cast<std::size_t>(place - params_.begin())];
    }

    void attach(std::span<void* const> buffers) {
        std::size_t next = 0;
        for (const BufferParam& param : kernel_.buffers) {
            Memory memory;
            if (!param.size.is_unknown()) {
                memory.size = number(param.size);
                if (memory.size < 0) {
                    throw InternalError(concat("interpret: kernel ", kernel_.name, ": buffer ", param.name, " has ",
                                               memory.size, " elements, but the number must not be negative"));
                }
            }
            if (param.role == BufferParam::Role::local) {
                memory.scratch.resize(static_cast<std::size_t>(memory.size) * size_of(param.dtype));
                memory.written.resize(static_cast<std::size_t>(memory.size));
                memory.data = memory.scratch.data();
            } else if (next < buffers.size()) {
                memory.data = static_cast<std::byte*>(buffers[next]);
                ++next;
            } else {
                throw InternalError(concat("interpret: kernel ", kernel_.name, ": no pointer for buffer ", param.name));
            }
            memories_.push_back(std::move(memory));
        }
        if (next != buffers.size()) {
            throw InternalError(
                concat("interpret: kernel ", kernel_.name, " takes ", next, " buffers, but received ", buffers.size()));
        }
    }

    FlatIndex flatten(const Index& index) const {
        FlatIndex flat;
        flat.constant = number(index.constant());
        for (const Index::Part& part : index.parts()) {
            FlatIndex::Part result;
            result.coefficient = number(part.coefficient);
            result.kind = part.term.kind;
            result.id = part.term.kind == IndexTerm::Kind::var ? part.term.var : part.term.value;
            if (part.term.inner != nullptr) {
                result.divisor = number(part.term.extent);
                result.inner = std::make_shared<const FlatIndex>(flatten(*part.term.inner));
            }
            flat.parts.push_back(std::move(result));
        }
        return flat;
    }

    Code prepare(const Block& block) const {
        Code code;
        for (const Stmt& stmt : block.stmts) code.steps.push_back(prepare(stmt));
        return code;
    }

    Step prepare(const Stmt& stmt) const {
        if (const auto* let = std::get_if<Let>(&stmt)) {
            const Instr& instr = kernel_.instrs[static_cast<std::size_t>(let->value)];
            const bool has_operand = instr.args[0] != no_value;
            const DType operand = has_operand ? type(instr.args[0]) : instr.type;
            return LetStep{&stmt, &instr, let->value, operand, flatten(instr.index)};
        }
        if (const auto* store = std::get_if<Store>(&stmt)) return StoreStep{&stmt, store, flatten(store->index)};
        if (const auto* init = std::get_if<InitAcc>(&stmt)) return InitStep{init->accumulator};
        if (const auto* step = std::get_if<Accumulate>(&stmt)) return AccumulateStep{step};
        if (const auto* product = std::get_if<MultiplyTiles>(&stmt)) {
            return ProductStep{&stmt,
                               product,
                               flatten(product->rows_at),
                               flatten(product->columns_at),
                               flatten(product->sums_at),
                               flatten(product->steps)};
        }
        const Loop& loop = std::get<Loop>(stmt);
        LoopStep step{loop.var, number(loop.extent), std::nullopt, {}};
        if (loop.limit) step.limit = flatten(*loop.limit);
        step.body.push_back(prepare(loop.body.front()));
        return step;
    }

    // --- Execution.

    DType type(ValueId value) const { return kernel_.instrs[static_cast<std::size_t>(value)].type; }
    Scalar value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
    bool holds(ValueId guard) const { return guard == no_value || value(guard).as<bool>(); }

    // Wraps like the 64-bit arithmetic of a machine: nonsense is caught when memory is accessed.
    std::int64_t evaluate(const FlatIndex& index) const {
        auto sum = static_cast<std::uint64_t>(index.constant);
        for (const FlatIndex::Part& part : index.parts) {
            sum += static_cast<std::uint64_t>(part.coefficient) * static_cast<std::uint64_t>(evaluate(part));
        }
        return static_cast<std::int64_t>(sum);
    }

    std::int64_t evaluate(const FlatIndex::Part& part) const {
        switch (part.kind) {
            case IndexTerm::Kind::var:
                return vars_[static_cast<std::size_t>(part.id)];
            case IndexTerm::Kind::value:
                return value(part.id).as<std::int64_t>();
            case IndexTerm::Kind::floor_div:
            case IndexTerm::Kind::mod:
                break;
        }
        if (part.divisor < 1) throw InternalError(concat("interpret: an index is divided by ", part.divisor));
        const std::int64_t dividend = evaluate(*part.inner);
        return part.kind == IndexTerm::Kind::floor_div ? floor_quotient(dividend, part.divisor)
                                                       : floor_remainder(dividend, part.divisor);
    }

    std::size_t checked(const Stmt& stmt, std::int32_t buffer, std::int64_t position) const {
        const Memory& memory = memories_[static_cast<std::size_t>(buffer)];
        if (position < 0 || (memory.size >= 0 && position >= memory.size)) {
            throw InternalError(concat("interpret: kernel ", kernel_.name, ": \"", print_statement(kernel_, stmt),
                                       "\" reaches element ", position, " of buffer ",
                                       kernel_.buffers[static_cast<std::size_t>(buffer)].name, ", which has ",
                                       memory.size, " elements"));
        }
        return static_cast<std::size_t>(position);
    }

    void run(const Code& code) {
        for (const Step& step : code.steps) {
            std::visit([this](const auto& s) { run(s); }, step);
        }
    }

    void run(const LetStep& let) { values_[static_cast<std::size_t>(let.id)] = compute(let); }

    Scalar compute(const LetStep& let) const {
        const Instr& instr = *let.instr;
        switch (instr.op) {
            case ScalarOp::constant:
                return constant_scalar(instr);
            case ScalarOp::index_value:
                return Scalar::of(evaluate(let.index));
            case ScalarOp::load:
                return holds(instr.args[0]) ? load(let) : Scalar{};
            case ScalarOp::acc_read: {
                const AccState& state = accumulators_[static_cast<std::size_t>(instr.slot)];
                return instr.integer == 0 ? state.value : Scalar::of(state.position);
            }
            default:
                break;
        }
        std::array<Scalar, 3> args;
        for (std::size_t k = 0; k < args.size(); ++k) {
            if (instr.args[k] != no_value) args[k] = value(instr.args[k]);
        }
        return evaluate_scalar(instr, let.operand, args);
    }

    Scalar load(const LetStep& let) const { return load(*let.stmt, let.instr->slot, evaluate(let.index)); }

    Scalar load(const Stmt& stmt, std::int32_t buffer, std::int64_t position) const {
        const std::size_t at = checked(stmt, buffer, position);
        const Memory& memory = memories_[static_cast<std::size_t>(buffer)];
        const BufferParam& param = kernel_.buffers[static_cast<std::size_t>(buffer)];
        if (!memory.written.empty() && !memory.written[at]) {
            throw InternalError(concat("interpret: kernel ", kernel_.name, ": \"", print_statement(kernel_, stmt),
                                       "\" reads element ", at, " of ", param.name, ", which was never written"));
        }
        return read_element(memory.data + at * size_of(param.dtype), param.dtype);
    }

    void run(const StoreStep& step) {
        const Store& store = *step.store;
        if (holds(store.guard)) write(*step.stmt, store.buffer, evaluate(step.index), value(store.value));
    }

    void write(const Stmt& stmt, std::int32_t buffer, std::int64_t position, Scalar value) {
        const std::size_t at = checked(stmt, buffer, position);
        Memory& memory = memories_[static_cast<std::size_t>(buffer)];
        const DType dtype = kernel_.buffers[static_cast<std::size_t>(buffer)].dtype;
        write_element(memory.data + at * size_of(dtype), dtype, value);
        if (!memory.written.empty()) memory.written[at] = true;
    }

    void run(const ProductStep& step) {
        const MultiplyTiles& product = *step.product;
        const std::int64_t height = product.row_tiles * matrix_tile;
        const std::int64_t width = product.column_tiles * matrix_tile;
        const std::int64_t rows_at = evaluate(step.rows_at);
        const std::int64_t columns_at = evaluate(step.columns_at);
        const std::int64_t sums_at = evaluate(step.sums_at);
        const std::int64_t words = std::max<std::int64_t>(evaluate(step.steps), 0) * matrix_tile;
        // Of a block of `size` words each: the element `place` of the word `at`.
        const auto element = [&](std::int32_t buffer, DType type, std::int64_t first, std::int64_t size,
                                 std::int64_t block, std::int64_t at, int place) {
            std::array<std::uint32_t, most_matrix_parts> parts{};
            for (int part = 0; part < product.parts; ++part) {
                const std::int64_t position = first + (block * product.parts + part) * size + at;
                parts[static_cast<std::size_t>(part)] = load(*step.stmt, buffer, position).as<std::uint32_t>();
            }
            if (type == DType::bfloat16) return Scalar::of(value_of_parts(parts, product.parts, place));
            const auto byte = static_cast<std::uint8_t>(parts[0] >> (8 * place));
            return Scalar::of(type == DType::int8 ? std::int32_t{static_cast<std::int8_t>(byte)} : std::int32_t{byte});
        };
        const auto sum_of_products = [&](auto sum, std::int64_t i, std::int64_t j) {
            using Sum = decltype(sum);
            for (std::int64_t k = 0; k < words; ++k) {
                const std::int64_t block = k / matrix_tile;
                const std::int64_t word = k % matrix_tile;
                for (int place = 0; place < matrix_word(product.rows_type); ++place) {
                    const Scalar row = element(product.rows, product.rows_type, rows_at, height * matrix_tile, block,
                                               i * matrix_tile + word, place);
                    const Scalar column = element(product.columns, product.columns_type, columns_at,
                                                  width * matrix_tile, block, word * width + j, place);
                    sum = static_cast<Sum>(sum + static_cast<Sum>(row.as<Sum>() * column.as<Sum>()));
                }
            }
            return sum;
        };
        for (std::int64_t i = 0; i < height; ++i) {
            for (std::int64_t j = 0; j < width; ++j) {
                const std::int64_t at = sums_at + i * product.sums_row + j;
                const bool adds = product.adds != no_value && holds(product.adds);
                const Scalar before = adds ? load(*step.stmt, product.sums, at) : Scalar{};
                write(*step.stmt, product.sums, at,
                      product.rows_type == DType::bfloat16
                          ? Scalar::of(sum_of_products(before.as<float>(), i, j))
                          : Scalar::of(static_cast<std::int32_t>(sum_of_products(before.as<std::uint32_t>(), i, j))));
            }
        }
    }

    void run(const InitStep& init) {
        const Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(init.accumulator)];
        accumulators_[static_cast<std::size_t>(init.accumulator)] = {initial_scalar(acc.combiner, acc.type)};
    }

    void run(const AccumulateStep& accumulate) {
        const Accumulate& step = *accumulate.step;
        if (!holds(step.guard)) return;
        const Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(step.accumulator)];
        AccState& state = accumulators_[static_cast<std::size_t>(step.accumulator)];
        const Scalar value = this->value(step.value);
        if (!is_arg_reduction(acc.combiner)) {
            state.value = combine(acc.combiner, acc.type, state.value, value);
            return;
        }
        // First means the lowest position, in whatever order they come.
        const std::int64_t position = this->value(step.position).as<std::int64_t>();
        const bool better = state.empty || replaces(acc.combiner, acc.type, value, state.value);
        const bool equal = !better && !replaces(acc.combiner, acc.type, state.value, value);
        if (better || (equal && position < state.position)) state = {value, position, false};
    }

    void run(const LoopStep& loop) {
        std::int64_t& var = vars_[static_cast<std::size_t>(loop.var)];
        const std::int64_t end = loop.limit ? std::min(loop.extent, evaluate(*loop.limit)) : loop.extent;
        for (var = 0; var < end; ++var) run(loop.body.front());
    }

    const Kernel& kernel_;
    std::vector<Dim> params_;
    std::span<const std::int64_t> sizes_;
    std::vector<Scalar> values_;
    std::vector<std::int64_t> vars_;
    std::vector<AccState> accumulators_;
    std::vector<Memory> memories_;
};

}  // namespace

void interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const std::int64_t> sizes) {
    verify(kernel);
    Interpreter(kernel, buffers, sizes).run();
}

}  // namespace topstitch::loopir
