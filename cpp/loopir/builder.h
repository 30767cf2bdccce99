// Builds a Kernel: places every value in the outermost loop that it allows, shares equal ones, folds constants.
// Whoever lowers to loop IR (op bodies, the stitcher, math expansion) writes through this.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "loopir/kernel.h"

namespace topstitch::loopir {

class Builder {
public:
    Builder();

    // --- Values. Pure ones are shared and hoisted to the outermost open loop that they allow.
    ValueId constant(double value, DType type);             // converted to `type`
    ValueId constant_int(std::int64_t value, DType type);   // bool or integer types: the low bits
    ValueId op(ScalarOp op, ValueId a, ValueId b = no_value, ValueId c = no_value);  // result type derived
    ValueId cast(ValueId a, DType type);
    ValueId bitcast(ValueId a, DType type);
    ValueId round_to(ValueId a, DType memory);
    ValueId to_bits16(ValueId a, DType memory);
    ValueId from_bits16(ValueId a, DType memory);
    ValueId index_value(const Index& index);                // int64
    // Loads from inputs are pure; loads from locals and from buffers that the kernel writes stay in order.
    ValueId load(int buffer, const Index& index, ValueId guard = no_value);
    ValueId acc_read(int accumulator, int component = 0);

    // Shorthand.
    ValueId add(ValueId a, ValueId b) { return op(ScalarOp::add, a, b); }
    ValueId sub(ValueId a, ValueId b) { return op(ScalarOp::sub, a, b); }
    ValueId mul(ValueId a, ValueId b) { return op(ScalarOp::mul, a, b); }
    ValueId div(ValueId a, ValueId b) { return op(ScalarOp::div, a, b); }
    ValueId select(ValueId p, ValueId a, ValueId b) { return op(ScalarOp::select, p, a, b); }

    DType type(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)].type; }
    // The number when `id` is a constant.
    std::optional<double> constant_value(ValueId id) const;

    // --- Buffers and accumulators.
    int add_buffer(BufferParam buffer);
    int add_accumulator(Combiner combiner, DType type);

    // --- Statements, in the innermost open loop.
    Index begin_loop(const std::string& name, const Dim& extent);  // the new variable
    void end_loop();
    void init_acc(int accumulator);
    void accumulate(int accumulator, ValueId value, ValueId position = no_value, ValueId guard = no_value);
    void store(int buffer, const Index& index, ValueId value, ValueId guard = no_value);

    int depth() const { return static_cast<int>(open_.size()) - 1; }
    Kernel finish(std::string name);  // verified; the builder is spent

private:
    struct Scope {
        Block block;
        VarId var = -1;
        std::vector<ValueId> shared;  // values to forget when the scope closes
    };
    ValueId insert(Instr instr, int depth, bool shareable);
    int depth_of(ValueId id) const { return depths_[static_cast<std::size_t>(id)]; }
    int depth_of(const Index& index) const;
    ValueId fold(const Instr& instr);

    Kernel kernel_;
    std::vector<Scope> open_;
    std::vector<int> depths_;                             // of each value
    std::vector<int> var_depths_;                         // of each variable
    std::unordered_multimap<std::size_t, ValueId> seen_;  // by hash of the instruction
};

// The result type of `op` on operands of type `operand` (select: of its second operand).
DType result_type(ScalarOp op, DType operand);

}  // namespace topstitch::loopir
