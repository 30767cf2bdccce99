// Checks that a kernel is well formed, so that back ends need not.
// Whatever fails is a defect of whoever built the kernel: the message names the statement.
#include <algorithm>

#include "loopir/kernel.h"
#include "loopir/print.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

template <typename T>
bool has(const std::vector<T>& items, std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(items.size());
}

class Verifier {
public:
    explicit Verifier(const Kernel& kernel)
        : kernel_(kernel),
          evaluated_(kernel.instrs.size()),
          visible_(kernel.instrs.size()),
          bound_(kernel.vars.size()),
          open_var_(kernel.vars.size()),
          init_depth_(kernel.accumulators.size(), not_initialised) {}

    void run() {
        check_tables();
        check_block(kernel_.body);
        for (std::size_t id = 0; id < evaluated_.size(); ++id) {
            if (evaluated_[id]) continue;
            const Stmt missing = Let{static_cast<ValueId>(id)};
            current_ = &missing;
            fail("the value is never evaluated");
        }
    }

private:
    static constexpr int not_initialised = -1;

    template <typename... Parts>
    [[noreturn]] void fail(const Parts&... parts) const {
        const std::string subject = current_ != nullptr ? print_statement(kernel_, *current_) : table_entry_;
        throw InternalError(concat("verify: kernel ", kernel_.name, ": in \"", subject, "\": ", parts...));
    }

    template <typename... Parts>
    void require(bool condition, const Parts&... parts) const {
        if (!condition) fail(parts...);
    }

    void check_tables() {
        for (const BufferParam& buffer : kernel_.buffers) {
            table_entry_ = concat("buffer ", buffer.name, ": ", name_of(buffer.dtype));
            require(!is_complex(buffer.dtype), "complex numbers are passed as pairs of float32");
            const bool local = buffer.role == BufferParam::Role::local;
            require(!local || !buffer.size.is_unknown(), "the size of a local buffer must be known or symbolic");
        }
        for (const Accumulator& acc : kernel_.accumulators) {
            table_entry_ = concat("accumulator: ", name_of(acc.combiner), " ", name_of(acc.type));
            const std::string error = type_error(acc.combiner, acc.type);
            require(error.empty(), error);
        }
    }

    void check_block(const Block& block) {
        std::vector<ValueId> values;
        const std::vector<int> outer_inits = init_depth_;
        for (const Stmt& stmt : block.stmts) {
            current_ = &stmt;
            std::visit([this](const auto& s) { check(s); }, stmt);
            if (const auto* let = std::get_if<Let>(&stmt)) values.push_back(let->value);
        }
        for (ValueId value : values) visible_[static_cast<std::size_t>(value)] = false;
        init_depth_ = outer_inits;
    }

    // --- References.

    void use(ValueId value, const char* what) const {
        require(has(kernel_.instrs, value), what, " %", value, " does not exist");
        const auto id = static_cast<std::size_t>(value);
        require(evaluated_[id], what, " %", value, " is used before it is evaluated");
        require(visible_[id], what, " %", value, " is evaluated in a loop that does not contain this statement");
    }

    void use(ValueId value, DType type, const char* what) const {
        use(value, what);
        const DType actual = kernel_.instrs[static_cast<std::size_t>(value)].type;
        require(actual == type, what, " %", value, " is ", name_of(actual), ", but must be ", name_of(type));
    }

    void use_guard(ValueId guard) const {
        if (guard != no_value) use(guard, DType::boolean, "the guard");
    }

    void use(const Index& index) const {
        require(!index.constant().is_unknown(), "the index has an unknown constant");
        for (const Index::Part& part : index.parts()) {
            require(!part.coefficient.is_unknown(), "the index has an unknown coefficient");
            use(part.term);
        }
    }

    void use(const IndexTerm& term) const {
        switch (term.kind) {
            case IndexTerm::Kind::var: {
                require(has(kernel_.vars, term.var), "loop variable ", term.var, " does not exist");
                const auto var = static_cast<std::size_t>(term.var);
                require(open_var_[var], "loop variable ", term.var, " is used outside its loop");
                const Dim& extent = kernel_.vars[var].extent;
                require(term.extent == extent || provably_nonnegative(term.extent - extent),
                        "the index takes variable ", term.var, " to be below ", term.extent.str(),
                        ", but its loop runs to ", extent.str());
                return;
            }
            case IndexTerm::Kind::value:
                use(term.value, DType::int64, "the value in the index");
                return;
            case IndexTerm::Kind::floor_div:
            case IndexTerm::Kind::mod:
                break;
        }
        require(term.inner != nullptr, "the index has a quotient without a dividend");
        require(!term.extent.is_unknown(), "the index has an unknown divisor");
        require(!term.extent.is_known() || term.extent.value() > 0, "the index has the divisor ", term.extent.str(),
                ", but divisors must be positive");
        use(*term.inner);
    }

    const BufferParam& use_buffer(std::int32_t buffer) const {
        require(has(kernel_.buffers, buffer), "buffer ", buffer, " does not exist");
        return kernel_.buffers[static_cast<std::size_t>(buffer)];
    }

    const Accumulator& use_accumulator(std::int32_t accumulator) const {
        require(has(kernel_.accumulators, accumulator), "accumulator ", accumulator, " does not exist");
        return kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    }

    const Accumulator& use_initialised(std::int32_t accumulator) const {
        const Accumulator& acc = use_accumulator(accumulator);
        require(init_depth_[static_cast<std::size_t>(accumulator)] != not_initialised, "accumulator ", accumulator,
                " is not initialised here");
        return acc;
    }

    // --- Statements.

    void check(const Let& let) {
        require(has(kernel_.instrs, let.value), "value ", let.value, " does not exist");
        const auto id = static_cast<std::size_t>(let.value);
        require(!evaluated_[id], "the value is evaluated a second time");
        const Instr& instr = kernel_.instrs[id];
        const int arity = info(instr.op).arity;
        for (int k = 0; k < 3; ++k) {
            if (k >= arity) {
                require(instr.args[k] == no_value, info(instr.op).name, " takes ", arity, " operands");
            } else if (instr.op != ScalarOp::load || instr.args[k] != no_value) {
                use(instr.args[k], "operand");
            }
        }
        if (instr.op == ScalarOp::load) use_buffer(instr.slot);
        if (instr.op == ScalarOp::load || instr.op == ScalarOp::index_value) use(instr.index);
        if (instr.op == ScalarOp::acc_read) use_initialised(instr.slot);
        const std::string error = type_error(kernel_, instr);
        require(error.empty(), error);
        evaluated_[id] = true;
        visible_[id] = true;
    }

    void check(const Store& store) const {
        const BufferParam& buffer = use_buffer(store.buffer);
        require(buffer.role != BufferParam::Role::input, "buffer ", buffer.name, " is an input and cannot be written");
        use(store.index);
        use(store.value, compute_type(buffer.dtype), "the value");
        use_guard(store.guard);
    }

    void check(const InitAcc& init) {
        use_accumulator(init.accumulator);
        init_depth_[static_cast<std::size_t>(init.accumulator)] = static_cast<int>(loops_.size());
    }

    void check(const Accumulate& step) const {
        const Accumulator& acc = use_initialised(step.accumulator);
        use(step.value, acc.type, "the value");
        use_guard(step.guard);
        if (is_arg_reduction(acc.combiner)) {
            require(step.position != no_value, name_of(acc.combiner), " needs a position");
            use(step.position, DType::int64, "the position");
        } else {
            require(step.position == no_value, name_of(acc.combiner), " takes no position");
        }
    }

    void check(const MultiplyTiles& product) const {
        for (const std::int32_t factor : {product.rows, product.columns}) {
            require(use_buffer(factor).dtype == DType::uint32, "the factors must be words of uint32");
        }
        const bool bytes = product.rows_type != DType::bfloat16;
        for (const DType type : {product.rows_type, product.columns_type}) {
            const bool fits = bytes ? type == DType::int8 || type == DType::uint8 : type == DType::bfloat16;
            require(fits, "the factors must both be bfloat16, or both bytes, but one is ", name_of(type));
        }
        require(!bytes || (product.parts == 1 && product.plain == no_value), "bytes have one part");
        const BufferParam& sums = use_buffer(product.sums);
        require(sums.dtype == (bytes ? DType::int32 : DType::float32), "the sums must be ", bytes ? "int32" : "float32",
                ", but are ", name_of(sums.dtype));
        require(sums.role != BufferParam::Role::input, "buffer ", sums.name, " is an input and cannot be written");
        for (const Index* index : {&product.rows_at, &product.columns_at, &product.sums_at, &product.steps})
            use(*index);
        require(product.parts == 1 || product.parts == 3, "elements have 1 or 3 parts, not ", product.parts);
        for (const int tiles : {product.row_tiles, product.column_tiles})
            require(tiles == 1 || tiles == 2, "1 or 2 tiles are multiplied, not ", tiles);
        require(product.sums_row >= product.column_tiles * matrix_tile, "rows of sums overlap");
        use_guard(product.adds);
        use_guard(product.plain);
        const auto is_vector = [](const Loop* outer) { return outer->vector || outer->unroll > 1; };
        require(std::none_of(loops_.begin(), loops_.end(), is_vector), "tiles are multiplied one after the other");
    }

    void check(const Loop& loop) {
        require(has(kernel_.vars, loop.var), "loop variable ", loop.var, " does not exist");
        const auto var = static_cast<std::size_t>(loop.var);
        require(!bound_[var], "variable ", loop.var, " belongs to another loop already");
        require(loop.body.size() == 1, "a loop has one body, but this has ", loop.body.size());
        require(!loop.extent.is_unknown(), "the extent is unknown");
        require(!loop.extent.is_known() || loop.extent.value() >= 0, "the extent is ", loop.extent.str(),
                ", but must not be negative");
        require(loop.extent == kernel_.vars[var].extent, "the extent is ", loop.extent.str(),
                ", but the variable's is ", kernel_.vars[var].extent.str());
        require(loop.unroll >= 1, "the loop is unrolled ", loop.unroll, " times, but must be at least once");
        if (loop.limit) {
            require(!loop.parallel, "a parallel loop has a limit");
            use(*loop.limit);
        }
        if (loop.parallel) check_parallel();
        const auto is_vector = [](const Loop* outer) { return outer->vector; };
        require(!loop.vector || std::none_of(loops_.begin(), loops_.end(), is_vector),
                "a vector loop inside another vector loop");

        bound_[var] = true;
        open_var_[var] = true;
        loops_.push_back(&loop);
        check_block(loop.body.front());
        loops_.pop_back();
        open_var_[var] = false;
    }

    void check_parallel() const {
        require(loops_.empty(), "a parallel loop must be the outermost statement");
        const auto is_other = [](const Stmt& stmt) { return !std::holds_alternative<Let>(stmt); };
        require(std::count_if(kernel_.body.stmts.begin(), kernel_.body.stmts.end(), is_other) == 1,
                "a parallel loop stands alone: beside it the kernel may only evaluate values");
    }

    const Kernel& kernel_;
    const Stmt* current_ = nullptr;  // the statement being checked
    std::string table_entry_;        // before there is one: what is being checked
    std::vector<bool> evaluated_;
    std::vector<bool> visible_;
    std::vector<bool> bound_;
    std::vector<bool> open_var_;
    std::vector<int> init_depth_;  // loops open where each accumulator was initialised
    std::vector<const Loop*> loops_;
};

}  // namespace

void verify(const Kernel& kernel) {
    Verifier(kernel).run();
}

}  // namespace topstitch::loopir
