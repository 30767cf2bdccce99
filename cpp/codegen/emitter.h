// Loop IR to source text: the state while one kernel is emitted. Only emit.cpp and the emit_*.cpp files include it.
// One value is one constant of the thread; statements appear in the order of the loop IR.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "codegen/grid_plan.h"
#include "codegen/helpers.h"
#include "codegen/names.h"
#include "codegen/scalar_emitter.h"

namespace topstitch::codegen {

// Bounds of indices of 32 bits: the steps of a loop may overshoot its end.
inline constexpr std::int64_t most_narrow = std::numeric_limits<std::int32_t>::max() - 4096;

class Emitter {
public:
    Emitter(const loopir::Kernel& kernel, const LoopFacts& facts, const GridPlan& plan, const Dialect& dialect,
            const EmitOptions& options);
    Source run();

private:
    // --- emit.cpp: the kernel's frame.
    void name_things();
    std::string sizes_struct() const;
    KernelHead head() const;
    std::string declarations() const;
    Launch launch() const;

    // --- emitter.cpp: statements and values.
    void emit_block(const loopir::Block& block);
    void emit_statements(const loopir::Block& block);
    void emit(const loopir::Let& let);
    std::string operation(const loopir::Instr& instr);
    void line(const std::string& text) {
        body_ += std::string(4 * static_cast<std::size_t>(depth_), ' ') + text + "\n";
    }
    void open(const std::string& text) {
        line(text + " {");
        ++depth_;
    }
    void close() {
        --depth_;
        line("}");
    }
    const loopir::Instr& instr(loopir::ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    const std::string& value(loopir::ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
    std::string type(DType type) const { return dialect_.type(type); }
    // A type that the dialect has not: part of a sum that is kept in two numbers.
    bool is_absent(DType type) const { return type == DType::float64 && !dialect_.limits().float64; }
    // Statements outside of spread loops are run by all threads of a group alike.
    bool is_uniform() const { return plan_.groups() && !in_spread_; }

    // --- emit_index.cpp
    bool fits_narrow(const loopir::Index& index);
    std::string index_text(const loopir::Index& index, bool wide);
    std::string offset(const loopir::Index& index);    // of an element of a buffer
    std::string position(const loopir::Index& index);  // int64
    std::string term_text(const loopir::IndexTerm& term, bool wide);
    std::string quotient_text(const loopir::IndexTerm& term, bool wide);
    std::string dim_text(const Dim& dim, bool wide);
    std::string index_type() const { return type(narrow_ ? DType::int32 : DType::int64); }
    SizeExpr magnitude(const loopir::Index& index, bool& needs_wide) const;
    void note_magnitude(const SizeExpr& bound);
    SizeExpr size(const Dim& dim) const { return SizeExpr::of(dim, size_params_); }
    SizeExpr extent(loopir::VarId var) const { return size(kernel_.vars[static_cast<std::size_t>(var)].extent); }

    // --- emit_memory.cpp
    std::string loaded(const loopir::Instr& load);
    void emit(const loopir::Store& store);
    void emit_store(const loopir::Store& store);
    void order(const std::set<int>& reads, const std::set<int>& writes);
    void order_before(const loopir::Loop& loop);
    void note_accesses(const loopir::Loop& loop);
    std::set<int> shared_reads(const Contents& contents) const;
    std::set<int> shared_writes(const Contents& contents) const;

    // --- emit_loops.cpp
    void emit(const loopir::Loop& loop);
    void emit_grid_variable(const loopir::Loop& loop);
    void emit_iterations(const loopir::Loop& loop);
    void emit_nest(const LoopStack& nest);
    std::string end_of(const loopir::Loop& loop);
    const std::string& var(loopir::VarId id) const { return vars_[static_cast<std::size_t>(id)]; }

    // --- emit_reductions.cpp
    void emit(const loopir::InitAcc& init);
    void emit(const loopir::Accumulate& accumulate);
    void emit_step(const loopir::Accumulate& accumulate);
    void find_fused(const loopir::Block& block);
    std::string acc_read(const loopir::Instr& read);
    void reset(int accumulator);
    void begin_parts(const loopir::Loop& loop);
    void join_parts(const loopir::Loop& loop);
    std::string identity(int accumulator) const;
    DType acc_type(int accumulator) const;
    std::string acc_name(int accumulator) const { return "a" + std::to_string(accumulator); }
    std::string second_name(int accumulator) const;  // the position, or the low part of a pair
    bool has_second(int accumulator) const;

    const loopir::Kernel& kernel_;
    const LoopFacts& facts_;
    const GridPlan& plan_;
    const Dialect& dialect_;
    bool narrow_;
    Helpers helpers_;
    ScalarEmitter scalar_;
    Names names_;
    std::vector<int> uses_;
    bool fuses_;
    std::set<loopir::ValueId> fused_;  // products that are rounded together with the sum that they are added to

    std::vector<Dim> size_params_;
    std::vector<std::string> sizes_;  // by size parameter
    std::set<std::size_t> used_sizes_;
    std::vector<std::string> vars_, buffers_, values_;
    std::string entry_;
    std::vector<SizeExpr> magnitudes_;

    std::string body_;
    int depth_ = 1;
    bool in_spread_ = false;
    std::set<int> fresh_;                  // accumulators that hold nothing yet, in every thread
    std::vector<std::set<int>> declared_;  // accumulators, by open block
    std::set<int> in_parts_;               // accumulators of which each thread has a part now
    std::set<DType> joined_types_;         // of values that simdgroups exchange through memory
    bool joins_positions_ = false;
    bool joins_pairs_ = false;
    std::set<int> read_, written_;  // shared buffers, since the last barrier
};

}  // namespace topstitch::codegen
