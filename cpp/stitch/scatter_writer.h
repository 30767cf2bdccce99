// What the two ways of writing a scatter share: its place in memory, variables and bodies.
// In parts (lower_scatter.cpp) updates are made one after the other; pulled (scatter_pull.cpp) they are joined.
#pragma once

#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

class ScatterWriter : public KernelWriter {
public:
    ScatterWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                  const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);

    Dim work() const {
        const Dim updates = Shape(body_.domain(node_.view)).num_elements();
        const double cost = 1 + cost_of(partition_, region_);
        return shape_.num_elements() + updates * Dim(static_cast<std::int64_t>(cost));
    }

protected:
    using VarId = loopir::VarId;

    Index region_var(VarId var) const override { return vars_[static_cast<std::size_t>(var)]; }
    void set_var(VarId var, const Index& index) {
        vars_[static_cast<std::size_t>(var)] = index;
        forget_values();
    }
    // The output index of this iteration.
    void set_home(const Indices& at) {
        const Indices& home = access(op_).home;
        for (std::size_t axis = 0; axis < home.size(); ++axis) {
            std::vector<VarId> var;
            home[axis].collect_vars(var);
            if (!var.empty()) set_var(var.front(), at[axis]);
        }
    }

    // The output is the variable that the updates go into: the base is there.
    bool updates_in_place() const {
        const auto replaced = in_place_.find(op_);
        return replaced != in_place_.end() && replaced->second == graph_.op(op_).inputs[0];
    }

    int count_output_vars() const {
        int count = 0;
        for (const Index& index : access(op_).home) count += index.is_constant() ? 0 : 1;
        return count;
    }
    Value in_scatter(const std::function<Value(ElementContext&)>& use) {
        return in_context(op_, op_, loopir::no_value,
                          [&](ElementContext& context, const OpDef&) { return use(context); });
    }
    int slot() { return buffer({op_, 0}, true); }

    OpId op_;
    NodeView node_;
    const ScatterBody& body_;
    const ScatterCut& cut_;
    Shape shape_;
    std::vector<Index> vars_;
};

// Each element looks for the updates that name it, and joins them.
class PulledScatter : public ScatterWriter {
public:
    using ScatterWriter::ScatterWriter;
    LoweredKernel write(const std::string& name);

private:
    Value joined_updates(const Indices& at, const Value& before);
    // The axis of the output on which the update's variable is the index; -1: the variable is searched.
    int axis_of(VarId var) const;
    struct SearchedUpdate {
        Indices update;
        Index number;  // among those that are searched
        int loops = 0;
    };
    SearchedUpdate begin_search(const Indices& at);
    // The update with a number, for the element.
    Indices numbered_update(const Indices& at, Index number);
    // Whether the update goes to the element.
    ValueId names(const Indices& at, const Indices& update);
};

}  // namespace topstitch::stitch
