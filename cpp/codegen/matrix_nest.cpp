// Recognises a product by its statements, of which there may be no others, and by where its factors lie.
// See matrix_nest.h.
#include "codegen/matrix_nest.h"

#include <algorithm>

namespace topstitch::codegen {

using loopir::Index;
using loopir::Instr;
using loopir::Kernel;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::ValueId;
using loopir::VarId;

namespace {

constexpr int most_sums = 4;  // matrices in one direction: their elements are registers of each thread

class NestFinder {
public:
    NestFinder(const Kernel& kernel, const LoopFacts& facts, int side) : kernel_(kernel), facts_(facts), side_(side) {}

    std::optional<MatrixNest> run(const Loop& loop) {
        nest_.rows = &loop;
        nest_.columns = lone_loop(loop);
        if (!is_whole(nest_.rows) || !is_whole(nest_.columns) || !find_sum() || !is_whole(nest_.steps) ||
            !find_factors() || !find_result()) {
            return std::nullopt;
        }
        return nest_;
    }

private:
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    static const Loop* lone_loop(const Loop& loop) {
        const std::vector<Stmt>& stmts = loop.body.front().stmts;
        return stmts.size() == 1 ? std::get_if<Loop>(&stmts.front()) : nullptr;
    }

    bool is_whole(const Loop* loop) const {
        return loop != nullptr && !loop->limit && loop->extent.is_known() && loop->extent.value() > 0 &&
               loop->extent.value() % side_ == 0;
    }

    // init, the loop over steps, the result; nothing else.
    bool find_sum() {
        for (const Stmt& stmt : nest_.columns->body.front().stmts) {
            if (const auto* init = std::get_if<loopir::InitAcc>(&stmt)) {
                if (sum_ >= 0) return false;
                sum_ = init->accumulator;
            } else if (const auto* loop = std::get_if<Loop>(&stmt)) {
                if (sum_ < 0 || nest_.steps != nullptr) return false;
                nest_.steps = loop;
            } else if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
                if (nest_.steps == nullptr) return false;
                after_.push_back(let->value);
            } else if (const auto* store = std::get_if<loopir::Store>(&stmt)) {
                if (nest_.result != nullptr || store->guard != no_value) return false;
                nest_.result = store;
            } else {
                return false;
            }
        }
        if (sum_ < 0 || nest_.steps == nullptr || nest_.result == nullptr) return false;
        const loopir::Accumulator& sum = kernel_.accumulators[static_cast<std::size_t>(sum_)];
        const auto& all = facts_.root().accumulated;
        return sum.combiner == loopir::Combiner::sum && sum.type == DType::float32 &&
               std::count(all.begin(), all.end(), sum_) == 1;
    }

    bool find_factors() {
        const std::vector<Stmt>& stmts = nest_.steps->body.front().stmts;
        if (stmts.size() != 4) return false;
        const auto* accumulate = std::get_if<loopir::Accumulate>(&stmts.back());
        if (accumulate == nullptr || accumulate->accumulator != sum_ || accumulate->guard != no_value) return false;
        const Instr& product = instr(accumulate->value);
        if (product.op != ScalarOp::mul) return false;
        for (std::size_t k = 0; k < 3; ++k) {
            const auto* let = std::get_if<loopir::Let>(&stmts[k]);
            const bool expected = let != nullptr && (let->value == product.args[0] || let->value == product.args[1] ||
                                                     let->value == accumulate->value);
            if (!expected) return false;
        }
        const bool swapped = is_local_load(product.args[0]) && instr(product.args[0]).index.depends_on(columns());
        const auto left = factor(product.args[swapped ? 1 : 0], rows(), step(), columns());
        const auto right = factor(product.args[swapped ? 0 : 1], step(), columns(), rows());
        if (!left || !right) return false;
        nest_.left = *left;
        nest_.right = *right;
        return true;
    }

    VarId rows() const { return nest_.rows->var; }
    VarId columns() const { return nest_.columns->var; }
    VarId step() const { return nest_.steps->var; }

    bool is_local(int buffer) const {
        const loopir::BufferParam& param = kernel_.buffers[static_cast<std::size_t>(buffer)];
        return param.role == loopir::BufferParam::Role::local && param.dtype == DType::float32 && param.size.is_known();
    }
    bool is_local_load(ValueId value) const {
        return instr(value).op == ScalarOp::load && is_local(instr(value).slot) && instr(value).args[0] == no_value;
    }

    static std::int64_t known_step(const Index& index, VarId var) {
        const Dim step = index.coefficient_of(var);
        return step.is_known() ? step.value() : 0;
    }

    // A load with lines along one of the two variables, which does not know the third.
    std::optional<MatrixNest::Factor> factor(ValueId load, VarId row, VarId column, VarId other) const {
        if (!is_local_load(load)) return std::nullopt;
        const Index& index = instr(load).index;
        std::vector<ValueId> values;
        index.collect_values(values);
        if (!values.empty() || index.depends_on(other)) return std::nullopt;
        const std::int64_t down = known_step(index, row);
        const std::int64_t along = known_step(index, column);
        if (along == 1 && down > 1) return MatrixNest::Factor{load, down, false};
        if (down == 1 && along > 1) return MatrixNest::Factor{load, along, true};
        return std::nullopt;
    }

    // The sum, or the sum added to what is where it is stored.
    bool find_result() {
        const loopir::Store& store = *nest_.result;
        const int target = store.buffer;
        std::vector<ValueId> values;
        store.index.collect_values(values);
        nest_.result_pitch = known_step(store.index, rows());
        if (!is_local(target) || !values.empty() || store.index.depends_on(step()) ||
            known_step(store.index, columns()) != 1 || nest_.result_pitch <= 1) {
            return false;
        }
        if (target == instr(nest_.left.load).slot || target == instr(nest_.right.load).slot) return false;
        const auto is_sum = [this](ValueId value) {
            return instr(value).op == ScalarOp::acc_read && instr(value).slot == sum_;
        };
        if (after_.size() == 1) return is_sum(store.value);
        const Instr& added = instr(store.value);
        if (after_.size() != 3 || added.op != ScalarOp::add) return false;
        const ValueId before = is_sum(added.args[0]) ? added.args[1] : added.args[0];
        nest_.adds = true;
        return (is_sum(added.args[0]) || is_sum(added.args[1])) && is_local_load(before) &&
               instr(before).slot == target && instr(before).index == store.index;
    }

    const Kernel& kernel_;
    const LoopFacts& facts_;
    int side_;
    MatrixNest nest_;
    int sum_ = -1;
    std::vector<ValueId> after_;  // values between the loop over steps and the store
};

}  // namespace

std::optional<MatrixNest> find_matrix_nest(const Kernel& kernel, const LoopFacts& facts, const Loop& loop,
                                           int matrix_side) {
    return NestFinder(kernel, facts, matrix_side).run(loop);
}

// The least time of the simdgroup that has most to do: so many products and loads of matrices, a product taking as long
// as two loads.
MatrixBlock choose_block(const MatrixNest& nest, int matrix_side, int simdgroups) {
    const std::int64_t down = nest.row_count() / matrix_side;
    const std::int64_t across = nest.column_count() / matrix_side;
    MatrixBlock best;
    std::int64_t least = 0;
    for (int rows = 1; rows <= most_sums; ++rows) {
        for (int columns = 1; columns <= most_sums; ++columns) {
            if (down % rows != 0 || across % columns != 0) continue;
            const std::int64_t blocks = (down / rows) * (across / columns);
            const std::int64_t turns = (blocks + simdgroups - 1) / simdgroups;
            const std::int64_t time = turns * (2 * rows * columns + rows + columns);
            if (least == 0 || time < least) {
                least = time;
                best = {rows, columns};
            }
        }
    }
    return best;
}

}  // namespace topstitch::codegen
