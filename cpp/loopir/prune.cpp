// Removal of unused values and empty loops, with a new numbering of the values.
// Stores and accumulations are the effects that keep values alive.
#include "loopir/prune.h"

#include <utility>

namespace topstitch::loopir {

namespace {

class Pruner {
public:
    explicit Pruner(Kernel& kernel) : kernel_(kernel), used_(kernel.instrs.size()), numbers_(kernel.instrs.size()) {}

    void run() {
        mark(kernel_.body);
        // Operands come before their users.
        for (std::size_t id = used_.size(); id-- > 0;) {
            if (!used_[id]) continue;
            for (ValueId arg : kernel_.instrs[id].args) mark(arg);
            mark(kernel_.instrs[id].index);
        }
        sweep(kernel_.body);
        kernel_.instrs = std::move(kept_);
    }

private:
    void mark(ValueId id) {
        if (id != no_value) used_[static_cast<std::size_t>(id)] = true;
    }

    void mark(const Index& index) {
        std::vector<ValueId> values;
        index.collect_values(values);
        for (ValueId value : values) mark(value);
    }

    void mark(const Block& block) {
        for (const Stmt& stmt : block.stmts) {
            if (const auto* store = std::get_if<Store>(&stmt)) {
                mark(store->value);
                mark(store->guard);
                mark(store->index);
            } else if (const auto* step = std::get_if<Accumulate>(&stmt)) {
                mark(step->value);
                mark(step->position);
                mark(step->guard);
            } else if (const auto* product = std::get_if<MultiplyTiles>(&stmt)) {
                for (const Index* index : {&product->rows_at, &product->columns_at, &product->sums_at, &product->steps})
                    mark(*index);
                mark(product->adds);
                mark(product->plain);
            } else if (const auto* loop = std::get_if<Loop>(&stmt)) {
                if (loop->limit) mark(*loop->limit);
                for (const Block& body : loop->body) mark(body);
            }
        }
    }

    ValueId renumbered(ValueId id) const { return id == no_value ? id : numbers_[static_cast<std::size_t>(id)]; }

    Index renumbered(const Index& index) const {
        std::vector<ValueId> values;
        index.collect_values(values);
        if (values.empty()) return index;
        return index.substitute_values([this](ValueId id) { return Index::value(renumbered(id)); });
    }

    // Keeps the used values; false when the statement is to be dropped.
    bool sweep(Stmt& stmt) {
        if (auto* let = std::get_if<Let>(&stmt)) {
            if (!used_[static_cast<std::size_t>(let->value)]) return false;
            Instr instr = std::move(kernel_.instrs[static_cast<std::size_t>(let->value)]);
            for (ValueId& arg : instr.args) arg = renumbered(arg);
            instr.index = renumbered(instr.index);
            numbers_[static_cast<std::size_t>(let->value)] = static_cast<ValueId>(kept_.size());
            let->value = static_cast<ValueId>(kept_.size());
            kept_.push_back(std::move(instr));
        } else if (auto* store = std::get_if<Store>(&stmt)) {
            store->value = renumbered(store->value);
            store->guard = renumbered(store->guard);
            store->index = renumbered(store->index);
        } else if (auto* step = std::get_if<Accumulate>(&stmt)) {
            step->value = renumbered(step->value);
            step->position = renumbered(step->position);
            step->guard = renumbered(step->guard);
        } else if (auto* product = std::get_if<MultiplyTiles>(&stmt)) {
            for (Index* index : {&product->rows_at, &product->columns_at, &product->sums_at, &product->steps})
                *index = renumbered(*index);
            product->adds = renumbered(product->adds);
            product->plain = renumbered(product->plain);
        } else if (auto* loop = std::get_if<Loop>(&stmt)) {
            if (loop->limit) loop->limit = renumbered(*loop->limit);
            sweep(loop->body.front());
            return !loop->body.front().stmts.empty();
        }
        return true;
    }

    void sweep(Block& block) {
        std::vector<Stmt> kept;
        for (Stmt& stmt : block.stmts) {
            if (sweep(stmt)) kept.push_back(std::move(stmt));
        }
        block.stmts = std::move(kept);
    }

    Kernel& kernel_;
    std::vector<bool> used_;
    std::vector<ValueId> numbers_;  // the new one of each value
    std::vector<Instr> kept_;
};

}  // namespace

void drop_unused(Kernel& kernel) {
    Pruner(kernel).run();
}

}  // namespace topstitch::loopir
