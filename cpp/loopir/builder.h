// Builds a Kernel: places every value in the outermost loop that it allows, shares equal ones, folds constants.
// Whoever lowers to loop IR (op bodies, the stitcher, math expansion) writes through this.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "loopir/kernel.h"

namespace topstitch::loopir {

class Builder {
public:
    Builder();

    // --- Values. Pure ones are shared and hoisted to the outermost open loop that they allow.
    ValueId constant(double value, DType type);            // converted to `type`
    ValueId constant_int(std::int64_t value, DType type);  // bool or integer types: the low bits
    ValueId op(ScalarOp op, ValueId a, ValueId b = no_value, ValueId c = no_value);  // result type derived
    ValueId cast(ValueId a, DType type);
    ValueId bitcast(ValueId a, DType type);
    ValueId round_to(ValueId a, DType memory);
    ValueId to_bits16(ValueId a, DType memory);
    ValueId from_bits16(ValueId a, DType memory);
    ValueId dot_pairs(ValueId a, ValueId b, DType memory);
    ValueId index_value(const Index& index);  // int64
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
    // The new variable. `limit`: see Loop.
    Index begin_loop(const std::string& name, const Dim& extent, const std::optional<Index>& limit = std::nullopt);
    void end_loop();
    void init_acc(int accumulator);
    void accumulate(int accumulator, ValueId value, ValueId position = no_value, ValueId guard = no_value);
    void store(int buffer, const Index& index, ValueId value, ValueId guard = no_value);
    void multiply_tiles(MultiplyTiles product);

    int depth() const { return static_cast<int>(open_.size()) - 1; }
    const Kernel& kernel() const { return kernel_; }  // what has been built so far
    Kernel finish(std::string name);                  // verified; the builder is spent

private:
    struct Scope {
        Block block;
        VarId var = -1;
        std::optional<Index> limit;
        std::vector<ValueId> values;  // to forget when the scope closes
    };
    ValueId convert(ScalarOp op, ValueId operand, DType type, DType memory, ValueId second = no_value);
    ValueId insert(Instr instr);
    ValueId insert_read(Instr instr);  // of what statements change: in order, in the innermost loop
    ValueId place(Instr instr, int depth, bool shareable);
    ValueId find_equal(const Instr& instr, int depth) const;
    void forget(ValueId id);
    void forget_reads(ScalarOp op, std::int32_t slot);
    void check_open(ValueId id) const;
    void check_type(ValueId id, DType type, const char* what) const;
    int depth_of(ValueId id) const;
    int depth_of(const Index& index) const;
    // The index with values that are themselves indices written out; its parts are checked.
    Index resolve(const Index& index) const;
    // The guard, or no_value when it is always true; nothing when it is never true.
    std::optional<ValueId> resolve_guard(ValueId guard) const;
    const BufferParam& buffer(int id) const;
    const Accumulator& accumulator(int id) const;
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    // The value that `instr` is exactly equal to, if it need not be computed (fold.cpp).
    ValueId fold(const Instr& instr);
    ValueId fold_constants(const Instr& instr);
    ValueId fold_arithmetic(const Instr& instr);
    ValueId fold_bits(const Instr& instr);
    ValueId fold_comparison(const Instr& instr);
    ValueId fold_index_comparison(const Instr& instr);
    std::optional<Index> as_index(ValueId id) const;
    // lt or le of two indices, for the whole range of their variables?
    bool is_provable(ScalarOp comparison, ValueId a, ValueId b) const;
    ValueId fold_select(const Instr& instr);
    ValueId fold_conversion(const Instr& instr);
    ValueId constant(const Instr& constant);
    bool is_constant(ValueId id) const { return instr(id).op == ScalarOp::constant; }
    bool is_number(ValueId id, double value) const;  // the constant, with the sign of zero

    Kernel kernel_;
    std::vector<Scope> open_;
    std::vector<int> depths_;                             // of each value; closed_scope when out of reach
    std::vector<int> var_depths_;                         // of each variable
    std::unordered_multimap<std::size_t, ValueId> seen_;  // by hash of the instruction
    std::vector<ValueId> reads_;                          // shareable values that a statement may outdate
    static constexpr int closed_scope = -1;
};

// The result type of `op` on operands of type `operand` (select: of its second operand).
DType result_type(ScalarOp op, DType operand);

}  // namespace topstitch::loopir
