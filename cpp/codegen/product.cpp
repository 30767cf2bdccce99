// Recognises a product by its shape: independent loops around one chain of loops that adds up one multiplication.
// See product.h.
#include "codegen/product.h"

#include <algorithm>
#include <set>
#include <utility>

namespace topstitch::codegen {

using loopir::Block;
using loopir::Index;
using loopir::Instr;
using loopir::Kernel;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::Store;
using loopir::ValueId;
using loopir::VarId;

void Product::exchange_factors() {
    std::swap(rows, columns);
    std::swap(row_factor, column_factor);
}

namespace {

class ProductFinder {
public:
    ProductFinder(const Kernel& kernel, const LoopFacts& facts) : kernel_(kernel), facts_(facts) {}

    std::optional<Product> run() {
        const bool has_locals = std::any_of(kernel_.buffers.begin(), kernel_.buffers.end(), [](const auto& buffer) {
            return buffer.role == loopir::BufferParam::Role::local;
        });
        if (has_locals || facts_.outer().empty() || !find_steps() || !find_factors() || !find_results())
            return std::nullopt;
        classify();
        if (product_.rows.empty() && product_.columns.empty()) return std::nullopt;
        const bool turned = !is_contiguous(product_.columns) && is_contiguous(product_.rows);
        if (product_.columns.empty() || turned) product_.exchange_factors();
        return product_;
    }

private:
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    const Block& inside() const { return facts_.outer().back()->body.front(); }

    // The chain of loops, at whose end there is one accumulation.
    bool find_steps() {
        for (const Loop* loop : facts_.outer()) {
            if (loop->limit) return false;
        }
        const Loop* loop = nullptr;
        for (const Stmt& stmt : inside().stmts) {
            if (const auto* init = std::get_if<loopir::InitAcc>(&stmt)) {
                if (product_.sum >= 0 || loop != nullptr) return false;
                product_.sum = init->accumulator;
            } else if (const auto* found = std::get_if<Loop>(&stmt)) {
                if (loop != nullptr || product_.sum < 0) return false;
                loop = found;
            } else if (std::holds_alternative<loopir::Accumulate>(stmt)) {
                return false;
            } else if (const auto* store = std::get_if<Store>(&stmt)) {
                if (loop == nullptr) return false;
                product_.stores.push_back(store);
            } else if (!product_.stores.empty() && changes(std::get<loopir::Let>(stmt).value)) {
                return false;  // values are computed before anything is stored
            }
        }
        if (product_.sum < 0 || product_.stores.empty()) return false;
        const loopir::Accumulator& sum = kernel_.accumulators[static_cast<std::size_t>(product_.sum)];
        if (sum.combiner != loopir::Combiner::sum || sum.type != DType::float32) return false;
        while (loop != nullptr) {
            if (loop->limit) return false;
            product_.steps.add({loop->var, loop->extent});
            const Block& block = loop->body.front();
            loop = only_loop(block);
            if (loop == nullptr && !accumulates_alone(block)) return false;
        }
        return !product_.steps.empty() && facts_.root().stores.size() == product_.stores.size();
    }

    bool accumulates_alone(const Block& block) {
        for (const Stmt& stmt : block.stmts) {
            if (std::holds_alternative<loopir::Let>(stmt)) continue;
            const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt);
            if (accumulate == nullptr || accumulated_ != no_value) return false;
            if (accumulate->accumulator != product_.sum || accumulate->guard != no_value) return false;
            accumulated_ = accumulate->value;
        }
        return accumulated_ != no_value;
    }

    bool find_factors() {
        const Instr& product = instr(accumulated_);
        if (product.op != ScalarOp::mul) return false;
        product_.row_factor = {product.args[0], needed_for({product.args[0]})};
        product_.column_factor = {product.args[1], needed_for({product.args[1]})};
        const auto can_be_staged = [this](const Product::Factor& factor) {
            return std::all_of(factor.values.begin(), factor.values.end(), [this](ValueId value) {
                return !changes(value) && instr(value).type != DType::float64;
            });
        };
        return can_be_staged(product_.row_factor) && can_be_staged(product_.column_factor);
    }

    bool find_results() {
        std::vector<ValueId> stored;
        for (const Store* store : product_.stores) {
            stored.push_back(store->value);
            if (store->guard != no_value) stored.push_back(store->guard);
            store->index.collect_values(stored);
        }
        product_.result_values = needed_for(stored);
        return std::all_of(product_.result_values.begin(), product_.result_values.end(), [this](ValueId value) {
            const Instr& i = instr(value);
            if (i.type == DType::float64 || (i.op == ScalarOp::acc_read && i.slot != product_.sum)) return false;
            // What is replaced in place is read by whoever replaces it.
            return i.op != ScalarOp::load || is_input(i.slot) ||
                   std::any_of(product_.stores.begin(), product_.stores.end(),
                               [&](const Store* store) { return store->buffer == i.slot && store->index == i.index; });
        });
    }

    // Whether statements change the value.
    bool changes(ValueId value) const {
        const Instr& i = instr(value);
        return i.op == ScalarOp::acc_read || (i.op == ScalarOp::load && !is_input(i.slot));
    }

    bool is_input(int buffer) const {
        return kernel_.buffers[static_cast<std::size_t>(buffer)].role == loopir::BufferParam::Role::input;
    }

    std::vector<ValueId> needed_for(std::vector<ValueId> open) const {
        std::set<ValueId> needed;
        while (!open.empty()) {
            const ValueId value = open.back();
            open.pop_back();
            if (!needed.insert(value).second) continue;
            for (const ValueId arg : instr(value).args) {
                if (arg != no_value) open.push_back(arg);
            }
            instr(value).index.collect_values(open);
        }
        std::vector<ValueId> ordered;
        for (const ValueId value : facts_.root().values) {
            if (needed.contains(value)) ordered.push_back(value);
        }
        return ordered;
    }

    bool depends(const Product::Factor& factor, VarId var) const {
        return std::any_of(factor.values.begin(), factor.values.end(),
                           [&](ValueId value) { return instr(value).index.depends_on(var); });
    }

    void classify() {
        for (const Loop* loop : facts_.outer()) {
            const bool row = depends(product_.row_factor, loop->var);
            const bool column = depends(product_.column_factor, loop->var);
            AxisGroup& group = row == column ? product_.batch : row ? product_.rows : product_.columns;
            group.add({loop->var, loop->extent});
        }
    }

    bool is_contiguous(const AxisGroup& group) const {
        return !group.empty() && product_.stores.front()->index.coefficient_of(group.last().var) == Dim(1);
    }

    const Kernel& kernel_;
    const LoopFacts& facts_;
    Product product_;
    ValueId accumulated_ = no_value;
};

}  // namespace

std::optional<Product> find_product(const Kernel& kernel, const LoopFacts& facts) {
    return ProductFinder(kernel, facts).run();
}

}  // namespace topstitch::codegen
