// What every way of lowering a region shares: values from the bodies of its members, buffers, stores.
// The loops, and what each variable of the region is in them, are the business of the derived writers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/element_lowering.h"
#include "stitch/lower.h"
#include "stitch/phases.h"

namespace topstitch::stitch {

// Writes one kernel of a region.
class KernelWriter {
public:
    KernelWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                 const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);
    virtual ~KernelWriter() = default;

protected:
    using ValueId = loopir::ValueId;

    // --- What the derived writer knows.

    // A variable of the region in the loops that are open now.
    virtual Index region_var(loopir::VarId var) const = 0;
    // A row value that is not computed here: kept in memory by an earlier pass, or running along the row.
    virtual std::optional<Value> kept_value(OpId) { return std::nullopt; }

    // --- Loops.

    Index begin_loop(const std::string& name, const LoopSpec& spec, const std::optional<Index>& limit = std::nullopt);
    void close(int loops);
    // To be called when region_var changes: values belong to the loops in which they were computed.
    void moved() { homes_.clear(); }
    void forget_values();

    Index over_loops(const Index& index) const;
    const Indices& home(OpId op);

    // --- Values.

    const OpAccess& access(OpId op) const { return partition_.accesses[static_cast<std::size_t>(op)]; }
    bool is_output(OpId op) const;
    Value operand(TensorRef ref, const Indices& at, ValueId guard);
    Value constant(TensorRef ref);
    // A member where this iteration computes it.
    Value member_value(OpId op);
    // An operation at any index: computed again there.
    Value computed(OpId op, const Indices& at, ValueId guard);
    Value element(OpId op, const Indices& at, ValueId guard);
    // Where a reduction's domain is in this iteration.
    Indices reduce_domain(OpId op, const ReduceBody& body, const OpView& view) const;
    // Calls `use` with a context in which the operands of `op` are found. `reader` is the member that is computed at
    // its home: `op` itself, or what repeats the view `op`; -1: none is.
    Value in_context(OpId op, OpId reader, ValueId guard,
                     const std::function<Value(ElementContext&, const OpDef&)>& use);

    // --- Memory.

    DType dtype(OpId op) const { return graph_.op(op).outputs[0].dtype; }
    static DType stored_dtype(DType dtype) { return is_complex(dtype) ? DType::float32 : dtype; }
    int buffer(TensorRef ref, bool writing);
    int add_buffer(const loopir::BufferParam& param, KernelArgument argument);
    // Scratch memory of the region, shared by its kernels: number `number`. Who first writes it makes it.
    int scratch_buffer(const std::string& name, int number, DType type, const Dim& size, bool writing);
    Index output_offset(OpId op) { return memory_offset(program_, {op, 0}, home(op)); }
    // All values are computed before the first store: an output may replace a variable in place, and nothing may
    // read the variable's new value by mistake.
    void store_outputs(const std::function<bool(OpId)>& due);

    int local_buffer(const std::string& name, DType type, const Dim& elements);

    // --- Sums of products in panels.

    // A factor as the innermost loop reads it: panels of `width` elements over the steps of the sum.
    struct PackedPanels {
        std::int64_t width = 1;
        Dim depth;              // steps, with padding
        bool in_lanes = false;  // [panel, step, element], else [panel, element, step]
        Index offset(const Index& panel, const Index& element, const Index& step) const;
    };
    // Fills `steps` of a panel, from `first` on, with what `value` gives for (element, step).
    template <typename Factor>
    void pack_panel(const PackedPanels& layout, int buffer, const Index& panel, const Index& first, const Dim& steps,
                    const std::optional<Index>& limit, Factor value) {
        const LoopSpec elements{"e", Dim(layout.width), false, layout.in_lanes, layout.in_lanes ? 2 : 1};
        const LoopSpec along{"k", steps, false, !layout.in_lanes, 1};
        Index element, step;
        if (layout.in_lanes) step = begin_loop("k", along, limit);
        element = begin_loop("e", elements);
        if (!layout.in_lanes) step = begin_loop("k", along, limit);
        b_.store(buffer, layout.offset(panel, element, first + step), value(element, first + step));
        close(2);
    }

    struct PanelPlace {
        Index row, column;
    };
    // Opens the two loops over a panel of results, all of which are in registers together.
    PanelPlace begin_panel(std::int64_t rows, std::int64_t columns, int rows_together, int vectors);

    template <typename Product>
    ValueId sum_of_products(DType type, const Dim& steps, const std::optional<Index>& limit, Product product) {
        const int sum = b_.add_accumulator(loopir::Combiner::sum, type);
        b_.init_acc(sum);
        b_.accumulate(sum, product(begin_loop("k", {"k", steps}, limit)));
        close(1);
        return b_.acc_read(sum);
    }

    // --- Factors of products on a matrix unit (matrix_panels.cpp).

    // A packed factor: panels of 16 or 32 elements, cut along the sum in blocks and these in groups of 16 words, as
    // loopir::MultiplyTiles reads them.
    struct MatrixPanels {
        std::int64_t elements = 0;
        int parts = 1;
        DType type = DType::bfloat16;  // of the parts
        bool is_rows = false;
        Dim groups = 1;               // of a panel
        Dim blocks = 1;               // of a panel
        int words = -1, ranges = -1;  // buffers; of each block, its loopir::matrix_range
        bool bounded = false;  // no element is too large or too small to have parts, and none matters that is small
        bool has_ranges() const { return parts > 1 && !bounded; }
        std::int64_t group_steps() const { return loopir::matrix_tile * loopir::matrix_word(type); }
        std::int64_t group_words() const { return elements * loopir::matrix_tile * parts; }
        Dim panel_words() const { return groups * Dim(group_words()); }
        Index words_at(const Index& panel, const Index& block) const {
            return panel * panel_words() + block * (floor_div(groups, blocks) * Dim(group_words()));
        }
        Index range_at(const Index& panel, const Index& block) const { return panel * blocks + block; }
    };
    struct MatrixRange {
        int smallest = -1, exact = -1;  // accumulators
    };
    MatrixRange begin_matrix_range(const MatrixPanels& panels);
    // `group`: a buffer, in which its steps begin at `at`: rows as [element][step], columns as [step][element].
    void split_matrix_group(const MatrixPanels& panels, int group, const Index& at, const Index& words_at,
                            const MatrixRange& range);
    void end_matrix_range(const MatrixPanels& panels, const Index& at, const MatrixRange& range);
    // Packs a block of a panel: `groups` of what `value` gives for (element, step), below the limit.
    template <typename Factor>
    void pack_matrix_panel(const MatrixPanels& panels, const Index& panel, const Index& block, const Dim& groups,
                           const Index& limit, Factor value) {
        const MatrixRange range = begin_matrix_range(panels);
        const Index group = begin_loop("group", {"group", groups}, limit);
        const std::int64_t group_steps = panels.group_steps();
        const DType type = panels.type == DType::bfloat16 ? DType::float32 : DType::int32;
        const int copy = local_buffer("group", type, Dim(panels.elements * group_steps));
        const LoopSpec elements{"e", Dim(panels.elements), false, !panels.is_rows, 1};
        const LoopSpec steps{"k", Dim(group_steps), false, panels.is_rows, 1};
        Index element, step;
        if (!panels.is_rows) step = begin_loop("k", steps);
        element = begin_loop("e", elements);
        if (panels.is_rows) step = begin_loop("k", steps);
        const Index at = panels.is_rows ? element * Dim(group_steps) + step : step * Dim(panels.elements) + element;
        b_.store(copy, at, value(element, group * Dim(group_steps) + step));
        close(2);
        split_matrix_group(panels, copy, 0, panels.words_at(panel, block) + group * Dim(panels.group_words()), range);
        close(1);
        end_matrix_range(panels, panels.range_at(panel, block), range);
    }
    // The product of a block of two panels, where there are such blocks; where the sums go, and how many groups there
    // are, is left to be said.
    loopir::MultiplyTiles matrix_product(const MatrixPanels& rows, const Index& row_panel, const Index& row_block,
                                         const MatrixPanels& columns, const Index& column_panel,
                                         const Index& column_block, ValueId exists = loopir::no_value);

    // The end: the schedule's flags are written into the finished kernel.
    LoweredKernel finish(const std::string& name);

    struct Recomputed {
        OpId op;
        ValueId guard;
        int pass;
        int depth;
        Indices at;
        Value value;
    };

    const Program& program_;
    const GraphData& graph_;
    const Partition& partition_;
    const Region& region_;
    const Schedule& schedule_;
    const std::map<OpId, TensorRef>& in_place_;
    LoweredRegion& result_;
    Phases phases_;

    loopir::Builder b_;
    int pass_ = 0;
    ValueId guard_ = loopir::no_value;  // where this iteration is one: loads and stores happen only there
    std::map<OpId, Value> row_values_, outer_values_;

private:
    // Whether the member `reader`, at home, reads the member `producer` nowhere but at home. The index that arrives
    // there may not show it: the digits of a tile's index have no bounds.
    bool reads_at_home(OpId reader, OpId producer) const;
    void decorate(loopir::Block& block, LoweredKernel& lowered) const;

    std::vector<LoopSpec> specs_;  // by variable of the kernel
    std::map<OpId, Indices> homes_;
    std::vector<Recomputed> recomputed_;
    OpId reader_ = -1;
    std::map<TensorRef, int> slots_;
    std::vector<KernelArgument> arguments_;
    std::set<int> streamed_;
};

// The offset of digits in mixed radix, the first the most significant.
Index row_major(const std::vector<std::pair<Index, Dim>>& digits);

// The kernels of a region that is a contraction with a tiling (lower_contraction.cpp).
void lower_contraction(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                       LoweredRegion& result);

// The kernel of a region that is attention or one of its gradients (lower_attention.cpp).
void lower_attention(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                     const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result);

// The kernel of a region that is a scatter with what is stitched to it (lower_scatter.cpp).
void lower_scatter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result);

// The kernels of a region that is a sort with what is stitched to it (lower_sort.cpp).
void lower_sort(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result);

}  // namespace topstitch::stitch
