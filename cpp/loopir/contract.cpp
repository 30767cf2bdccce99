// The contraction peephole and the use counts that it needs.
// The slot of a product that disappears is reused, so that every instruction keeps exactly one Let.
#include "loopir/contract.h"

#include <utility>

namespace topstitch::loopir {

namespace {

class UseCounter {
public:
    explicit UseCounter(const Kernel& kernel) : kernel_(kernel), uses_(kernel.instrs.size(), 0) { count(kernel.body); }
    std::vector<int> take() { return std::move(uses_); }

private:
    void count(ValueId value) {
        if (value != no_value) ++uses_[static_cast<std::size_t>(value)];
    }
    void count(const Index& index) {
        std::vector<ValueId> values;
        index.collect_values(values);
        for (const ValueId value : values) count(value);
    }
    void count(const Block& block) {
        for (const Stmt& stmt : block.stmts) std::visit([this](const auto& s) { count(s); }, stmt);
    }
    void count(const Let& let) {
        const Instr& instr = kernel_.instrs[static_cast<std::size_t>(let.value)];
        for (const ValueId arg : instr.args) count(arg);
        count(instr.index);
    }
    void count(const Store& store) {
        count(store.index);
        count(store.value);
        count(store.guard);
    }
    void count(const InitAcc&) {}
    void count(const Accumulate& accumulate) {
        count(accumulate.value);
        count(accumulate.position);
        count(accumulate.guard);
    }
    void count(const MultiplyTiles& product) {
        for (const Index* index : {&product.rows_at, &product.columns_at, &product.sums_at, &product.steps})
            count(*index);
        count(product.adds);
        count(product.plain);
    }
    void count(const Loop& loop) {
        if (loop.limit) count(*loop.limit);
        count(loop.body.front());
    }

    const Kernel& kernel_;
    std::vector<int> uses_;
};

class Contractor {
public:
    explicit Contractor(Kernel& kernel) : kernel_(kernel), uses_(count_uses(kernel)) {}

    void run(Block& block) {
        std::vector<Stmt> stmts;
        stmts.reserve(block.stmts.size());
        for (Stmt& stmt : block.stmts) {
            if (auto* loop = std::get_if<Loop>(&stmt)) {
                run(loop->body.front());
            } else if (const auto* let = std::get_if<Let>(&stmt)) {
                const ValueId negated = contract(let->value);
                if (negated != no_value) stmts.push_back(Let{negated});
            }
            stmts.push_back(std::move(stmt));
        }
        block.stmts = std::move(stmts);
    }

private:
    Instr& instr(ValueId id) { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    bool is_lone_product(ValueId id) {
        return instr(id).op == ScalarOp::mul && uses_[static_cast<std::size_t>(id)] == 1;
    }

    // Gives a new value to be evaluated just before `id`, or none.
    ValueId contract(ValueId id) {
        const Instr old = instr(id);
        if ((old.op != ScalarOp::add && old.op != ScalarOp::sub) || !is_floating(old.type)) return no_value;
        const bool first = is_lone_product(old.args[0]);
        if (!first && !is_lone_product(old.args[1])) return no_value;
        const ValueId product = first ? old.args[0] : old.args[1];
        const ValueId other = first ? old.args[1] : old.args[0];
        const ValueId a = instr(product).args[0];
        const ValueId b = instr(product).args[1];

        // What becomes of the product's slot: -a where it is needed, else something that costs nothing.
        Instr slot;
        slot.type = old.type;
        ValueId fma_a = a;
        ValueId fma_c = other;
        ValueId negated = no_value;
        if (old.op == ScalarOp::sub && !first) {
            slot.op = ScalarOp::neg;
            slot.args[0] = a;
            fma_a = product;
        } else if (old.op == ScalarOp::sub) {
            negated = negative(other);
            fma_c = negated;
        }
        instr(product) = slot;

        Instr& fused = instr(id);
        fused.op = ScalarOp::fma;
        fused.args[0] = fma_a;
        fused.args[1] = b;
        fused.args[2] = fma_c;
        return negated;
    }

    ValueId negative(ValueId value) {
        Instr neg;
        neg.op = ScalarOp::neg;
        neg.type = instr(value).type;
        neg.args[0] = value;
        kernel_.instrs.push_back(neg);
        uses_.push_back(1);
        return static_cast<ValueId>(kernel_.instrs.size()) - 1;
    }

    Kernel& kernel_;
    std::vector<int> uses_;
};

}  // namespace

std::vector<int> count_uses(const Kernel& kernel) {
    return UseCounter(kernel).take();
}

Kernel contract(Kernel kernel) {
    Contractor(kernel).run(kernel.body);
    return kernel;
}

}  // namespace topstitch::loopir
