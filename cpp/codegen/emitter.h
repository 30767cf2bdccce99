// Loop IR to source text: the state while one kernel is emitted. Only emit.cpp and the emit_*.cpp files include it.
// One value is one constant of the thread; statements appear in the order of the loop IR.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "codegen/grid_plan.h"
#include "codegen/helpers.h"
#include "codegen/names.h"
#include "codegen/product_plan.h"
#include "codegen/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

// Bounds of indices of 32 bits: the steps of a loop may overshoot its end.
inline constexpr std::int64_t most_narrow = std::numeric_limits<std::int32_t>::max() - 4096;

class Emitter {
public:
    // `product`: that of the kernel, if it becomes tiles; then its loops are not written. `sizes`: its size arguments.
    Emitter(const loopir::Kernel& kernel, const LoopFacts& facts, const GridPlan& plan, const ProductPlan* product,
            std::vector<Dim> sizes, const Dialect& dialect, const EmitOptions& options);
    Source run();

private:
    // --- emit.cpp: the kernel's frame.
    void name_things();
    std::string sizes_struct() const;
    KernelHead head() const;
    std::string declarations() const;
    Launch launch() const;
    std::optional<DType> matrices() const;

    // --- emitter.cpp: statements and values.
    void emit_statements(const loopir::Block& block);
    void emit(const loopir::Let& let);
    std::string operation(const loopir::Instr& instr);
    bool is_narrow(loopir::ValueId id);
    void line(const std::string& text) {
        body_ += std::string(4 * static_cast<std::size_t>(depth_), ' ') + text + "\n";
    }
    void open(const std::string& text) {
        line(text + " {");
        ++depth_;
    }
    void open_else() {
        --depth_;
        line("} else {");
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
    // Statements outside of spread loops are run by all threads of a group alike, and those of a row by its team.
    bool is_uniform() const { return plan_.groups() && (!in_spread_ || in_team()); }
    bool in_team() const { return team_ > 1; }

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
    void emit_spread(const loopir::Loop& loop);
    void emit_steps_of_team(const loopir::Loop& loop);
    void emit_iterations(const loopir::Loop& loop);
    void emit_iteration(const loopir::Loop& loop, const std::string& end);
    std::string number_of(const loopir::Loop& loop);
    std::string open_nest(const LoopStack& nest);
    void emit_in_nest(const LoopStack& nest, const std::string& step);
    std::string end_of(const loopir::Loop& loop);
    const std::string& var(loopir::VarId id) const { return vars_[static_cast<std::size_t>(id)]; }

    // --- emit_wide.cpp
    // Four iterations, the first of which has the number `first`.
    struct Four {
        const WideAccesses& accesses;
        const AxisGroup& iterations;
        std::string first;
        std::string left;    // of the four there are so many; empty: all
        bool stops = false;  // those that are not there must not be computed
    };
    void emit_four(const Four& four, const std::function<void()>& each);
    std::string emit_wide_load(const loopir::Instr& load, const std::string& left);
    void emit_wide_store(const loopir::Store& store, const std::string& name, const std::string& left);
    std::string emit_left(const std::string& first, const std::string& end);
    std::string digit_text(const std::string& number, const std::vector<Dim>& radices, std::size_t place);
    void emit_digits(const AxisGroup& group, const std::string& number);
    const std::string& local_name(const std::string& wanted);

    // --- emit_matrices.cpp
    void emit_matrices(const MatrixNest& nest);

    // --- emit_prefix.cpp
    // The chunk of a loop that all threads do at once.
    struct Chunk {
        const loopir::Loop& loop;
        const PrefixLoop& prefix;
        std::string begin, end;              // of all threads
        std::string first;                   // of this thread's iterations
        std::string own;                     // the head of the loop over those
        const WideAccesses* wide = nullptr;  // they are four at once
        std::string left;                    // of which there are so many; empty: all
    };
    void emit_prefix(const loopir::Loop& loop, const PrefixLoop& prefix);
    void emit_own(const Chunk& chunk, const PrefixLoop::Step* parts, const std::function<void()>& each);
    void emit_parts(const Chunk& chunk, std::size_t step);
    void emit_part_statements(const Chunk& chunk, const PrefixLoop::Step& parts);
    void join_prefix(int accumulator, const std::string& carry, const std::string& safe = "");
    void join_checked(const Chunk& chunk, int accumulator);
    static std::string of_acc(int accumulator, const char* what) { return concat("a", accumulator, "_", what); }
    bool is_joined_in_memory() const { return plan_.group_threads() > dialect_.limits().simd_width; }

    // --- emit_product.cpp
    void emit_product();
    void emit_tile();
    struct TiledFactor;
    void declare_tiles(const TiledFactor& rows, const TiledFactor& columns);
    void emit_tile_position(const TiledFactor& rows, const TiledFactor& columns);
    void emit_sums(const TiledFactor& rows, const TiledFactor& columns);
    void emit_staging(const TiledFactor& factor);
    void emit_staged(const TiledFactor& factor, const std::string& line_number, const std::string& step_number);
    void emit_matrix_loads(const TiledFactor& factor, const std::string& counter, bool upright);
    void emit_results(const TiledFactor& rows, const TiledFactor& columns);
    void emit_result_stores(const TiledFactor& rows, const TiledFactor& columns);
    void for_each_sum(const TiledFactor& rows, const TiledFactor& columns, const std::string& statement);
    void emit_unrolled(const std::string& counter, int count, const std::function<void()>& inside);
    std::string staged(const std::string& number) const;
    std::string sources(const Product::Factor& factor) const;
    void emit_count(const std::string& name, const AxisGroup& group);
    void emit_batch(const std::string& text);
    std::string number_name(const AxisGroup& group, const std::string& what);
    SizeExpr count_of(const AxisGroup& group) const;
    Launch product_launch() const;
    void emit_result(const std::string& sum);

    // --- emit_strip.cpp
    void emit_strip();
    void emit_strip_sums(const std::string& sums);
    void emit_strip_row(const std::string& number);
    void emit_strip_results(const std::string& parts);

    // --- emit_reductions.cpp
    void emit(const loopir::InitAcc& init);
    void emit(const loopir::Accumulate& accumulate);
    void emit(const loopir::MultiplyTiles& product);
    void emit_step(const loopir::Accumulate& accumulate);
    void find_fused(const loopir::Block& block);
    std::string acc_read(const loopir::Instr& read);
    void declare(int accumulator, const std::string& start = "");
    void reset(int accumulator);
    void begin_parts(const loopir::Loop& loop);
    void join_parts(const loopir::Loop& loop);
    std::string identity(int accumulator) const;
    DType acc_type(int accumulator) const;
    std::string acc_name(int accumulator) const;
    std::string second_name(int accumulator) const;  // the position, or the low part of a pair
    bool has_second(int accumulator) const;

    const loopir::Kernel& kernel_;
    const LoopFacts& facts_;
    const GridPlan& plan_;
    const ProductPlan* product_;
    const Dialect& dialect_;
    bool narrow_;
    Helpers helpers_;
    ScalarEmitter scalar_;
    Names names_;
    std::vector<int> uses_;
    std::vector<int> narrow_uses_;  // of them, those for which an index may have 32 bits as well
    bool fuses_;
    std::set<loopir::ValueId> fused_;  // products that are rounded together with the sum that they are added to

    std::vector<Dim> size_params_;
    std::vector<std::string> sizes_;  // by size parameter
    std::set<std::size_t> used_sizes_;
    std::vector<std::string> vars_, buffers_, values_;
    std::string entry_;
    std::vector<SizeExpr> magnitudes_;

    // What of the iteration that is written is one of four.
    struct Wide {
        std::string part;                              // which of the four
        std::set<loopir::ValueId> before;              // values that are there already
        std::map<loopir::ValueId, std::string> loads;  // the four elements
        std::map<const loopir::Store*, std::string> stores;
    };
    std::optional<Wide> wide_;
    std::map<std::string, std::string> local_names_;  // by what was wanted

    std::string body_;
    int depth_ = 1;
    bool in_spread_ = false;
    int team_ = 1;                         // lanes that run what is written now alike, in a row of a team
    std::set<int> fresh_;                  // accumulators that hold nothing yet, in every thread
    std::vector<std::set<int>> declared_;  // accumulators, by open block
    std::map<int, std::string> running_;   // what accumulators are called in the iterations of one thread
    std::set<int> in_parts_;               // accumulators of which each thread has a part now
    std::set<DType> joined_types_;         // of values that simdgroups exchange through memory
    bool joins_positions_ = false;
    bool joins_pairs_ = false;
    // Shared buffers, since the last barrier: of the group, or of the team.
    std::set<int> read_, written_;
};

}  // namespace topstitch::codegen
