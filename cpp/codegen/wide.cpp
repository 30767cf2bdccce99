// Looks at the index of each access: it must grow by one with the iterations, and depend on them in no other way.
// See wide.h.
#include "codegen/wide.h"

#include <algorithm>
#include <set>

namespace topstitch::codegen {

using loopir::Index;
using loopir::Instr;
using loopir::Kernel;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Store;
using loopir::ValueId;

namespace {

// Languages have vectors of four of these.
bool has_vectors(DType type) {
    return size_of(type) <= 4;
}

class WideFinder {
public:
    WideFinder(const Kernel& kernel, const LoopFacts& facts, const AxisGroup& iterations)
        : kernel_(kernel), facts_(facts) {
        // Four neighbours share all digits but the last when that one counts up to a multiple of four.
        const Axis& last = iterations.last();
        const bool last_moves = iterations.axes().size() == 1 || !exact_div(last.extent, Dim(wide_count)).is_unknown();
        moving_ = last_moves ? AxisGroup(last) : iterations;
    }

    std::optional<WideAccesses> run(std::span<const ValueId> values, std::span<const Store* const> stores) {
        WideAccesses result;
        result.moving = moving_.axes();
        for (const ValueId value : values) {
            if (!varies(value)) {
                result.before.push_back(value);
                continue;
            }
            const Instr& i = kernel_.instrs[static_cast<std::size_t>(value)];
            if (i.op == ScalarOp::load && !is_local(i.slot)) {
                if (!is_wide(i.slot, i.index, i.args[0])) return std::nullopt;
                result.loads.push_back(value);
            } else {
                result.counted = result.counted || counts(i.index);
            }
        }
        for (const Store* store : stores) {
            if (is_local(store->buffer)) {
                result.counted = result.counted || counts(store->index);
                continue;
            }
            if (!is_wide(store->buffer, store->index, store->guard)) return std::nullopt;
            result.stores.push_back(store);
        }
        if (result.loads.empty() && result.stores.empty()) return std::nullopt;
        return result;
    }

private:
    bool is_local(int buffer) const {
        return kernel_.buffers[static_cast<std::size_t>(buffer)].role == loopir::BufferParam::Role::local;
    }
    bool varies(ValueId value) const {
        return std::any_of(moving_.axes().begin(), moving_.axes().end(),
                           [&](const Axis& axis) { return facts_.depends(value, axis.var); });
    }
    bool counts(const Index& index) const {
        return std::any_of(moving_.axes().begin(), moving_.axes().end(),
                           [&](const Axis& axis) { return index.depends_on(axis.var); });
    }
    bool is_wide(int buffer, const Index& index, ValueId guard) const {
        if (!has_vectors(kernel_.buffers[static_cast<std::size_t>(buffer)].dtype)) return false;
        if (guard != no_value && varies(guard)) return false;
        std::vector<ValueId> parts;
        index.collect_values(parts);
        const bool steady = std::none_of(parts.begin(), parts.end(), [this](ValueId part) { return varies(part); });
        return steady && moving_.is_contiguous(index);
    }

    const Kernel& kernel_;
    const LoopFacts& facts_;
    AxisGroup moving_;
};

}  // namespace

std::optional<WideAccesses> find_wide(const Kernel& kernel, const LoopFacts& facts, const AxisGroup& iterations,
                                      std::span<const ValueId> values, std::span<const Store* const> stores) {
    return WideFinder(kernel, facts, iterations).run(values, stores);
}

std::optional<PlainBody> plain_body(const Kernel& kernel, const loopir::Loop& loop, bool running) {
    PlainBody body;
    std::set<int> stored;
    for (const loopir::Stmt& stmt : loop.body.front().stmts) {
        if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            const Instr& i = kernel.instrs[static_cast<std::size_t>(let->value)];
            // Loads come before all stores then.
            if (i.op == ScalarOp::load && stored.contains(i.slot)) return std::nullopt;
            if (i.op == ScalarOp::acc_read && !running) return std::nullopt;
            body.values.push_back(let->value);
        } else if (const auto* store = std::get_if<Store>(&stmt)) {
            if (!stored.insert(store->buffer).second) return std::nullopt;
            body.stores.push_back(store);
        } else if (std::holds_alternative<loopir::Accumulate>(stmt)) {
            body.accumulates = true;
        } else {
            return std::nullopt;
        }
    }
    return body;
}

}  // namespace topstitch::codegen
