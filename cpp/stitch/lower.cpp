// Writes the loop nest of a region: loops from the schedule, values from the bodies of its members.
// See lower.h and phases.h.
#include "stitch/lower.h"

#include <limits>

#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::BufferParam;
using loopir::no_value;
using loopir::ValueId;
using loopir::VarId;

// Longer sums are added up in blocks, and the blocks in float64: otherwise the error would grow with the length.
constexpr std::int64_t sum_block_of_lanes = 1024;
constexpr std::int64_t sum_block = 128;
constexpr std::int64_t blocks_worth = 4;

// Writes the loops of a schedule, the row once for each pass.
class NestWriter : public KernelWriter {
public:
    NestWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
               const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
        : KernelWriter(program, partition, region, schedule, in_place, result),
          loops_(schedule.outer.size() + schedule.rows.size()) {
        for (const auto& [op, member] : region.members) {
            if (access(op).scan) backwards_ = access(op).scan->reverse;
        }
        choose_kept();
        if (schedule.rows.empty()) return;
        const LoopSpec& last = schedule.rows.back();
        const std::int64_t block = last.vector ? sum_block_of_lanes : sum_block;
        if (!last.extent.is_known() || last.extent.value() >= blocks_worth * block) block_ = block;
    }

    // The whole region in one kernel.
    LoweredKernel write_whole(const std::string& name) {
        open_outer();
        for (int pass = 0; pass < phases_.passes; ++pass) {
            begin_pass(pass);
            open_rows();
            row_pass();
            close_rows();
            read_accumulators();
        }
        finish_outer();
        return finish(name);
    }

    // The innermost loop is written once for each of its pieces.
    LoweredKernel write_pieces(const std::string& name) {
        const std::size_t last = schedule_.outer.size() - 1;
        open_outer(true, last);
        LoopSpec piece = schedule_.outer[last];
        std::int64_t begin = 0;
        for (std::size_t k = 0; k <= schedule_.outer[last].cuts.size(); ++k) {
            const std::vector<std::int64_t>& cuts = schedule_.outer[last].cuts;
            const std::int64_t end = k < cuts.size() ? cuts[k] : schedule_.outer[last].extent.value();
            piece.extent = Dim(end - begin);
            set_loop(last, Index(begin) + begin_loop(piece.name, piece));
            forget_values();
            store_outputs([](OpId) { return true; });
            b_.end_loop();
            begin = end;
        }
        for (std::size_t k = 0; k < last; ++k) b_.end_loop();
        return finish(name);
    }

    // First kernel of a split reduction: chunk c of the first row loop, accumulated into partial results.
    LoweredKernel write_chunks(const std::string& name) {
        chunk_ = begin_loop("chunk", {"chunk", Dim(schedule_.chunks), true});
        open_outer(false);
        begin_pass(0);
        const Dim length = floor_div(schedule_.rows[0].extent, Dim(schedule_.chunks));
        LoopSpec part = schedule_.rows[0];
        part.extent = length;
        open_row(0, part, chunk_ * length);
        open_rows(1);
        totals_pass();
        close_rows();
        for (auto& [op, accumulators] : accumulators_) {
            for (std::size_t k = 0; k < accumulators.size(); ++k) {
                const ValueId value =
                    accumulators[k].position ? b_.acc_read(accumulators[k].id, 1) : sum_of(accumulators[k]);
                b_.store(partial_buffer(op, k, true), partial_offset(chunk_), value);
            }
        }
        close_outer();
        b_.end_loop();
        return finish(name);
    }

    // Second kernel: combines the chunks and the rows that they left over, then everything that follows.
    LoweredKernel write_combination(const std::string& name) {
        block_ = 0;
        open_outer();
        begin_pass(0);
        combine_chunks(Dim(schedule_.chunks), std::nullopt);
        const Dim length = floor_div(schedule_.rows[0].extent, Dim(schedule_.chunks));
        const Dim done = length * Dim(schedule_.chunks);
        LoopSpec rest = schedule_.rows[0];
        rest.extent = schedule_.rows[0].extent - done;
        rest.unroll = 1;
        rest.vector = false;
        const Index step = begin_loop(rest.name, rest);
        set_loop(schedule_.outer.size(), Index(done) + step);
        open_rows(1);
        row_pass();
        close_rows();
        read_accumulators();
        finish_outer();
        return finish(name);
    }

    // Second kernel of a scan in chunks: each goes on from what those before it come to.
    LoweredKernel write_scanned_chunks(const std::string& name) {
        const Index chunk = begin_loop("chunk", {"chunk", Dim(schedule_.chunks), true});
        open_outer(false);
        begin_pass(0);
        combine_chunks(Dim(schedule_.chunks), chunk);
        const Dim& extent = schedule_.rows[0].extent;
        const Dim length = floor_div(extent, Dim(schedule_.chunks));
        // The last one also takes what the division leaves over.
        LoopSpec part = schedule_.rows[0];
        part.extent = length + (Dim(schedule_.chunks) - 1);
        const Index first = chunk * length;
        const ValueId is_last =
            b_.op(loopir::ScalarOp::eq, b_.index_value(chunk), b_.constant_int(schedule_.chunks - 1, DType::int64));
        const ValueId end = b_.select(is_last, b_.index_value(Index(extent) - first), b_.index_value(Index(length)));
        open_row(0, part, first, Index::value(end));
        row_pass();
        close_rows();
        read_accumulators();
        finish_outer();
        b_.end_loop();
        return finish(name);
    }

private:
    struct AccumulatorSlot {
        int id = -1;
        DType type = DType::float32;
        bool position = false;  // the position of an argmin/argmax, read from the same accumulator
        int total = -1;         // of a sum in blocks: what the blocks are added to
    };
    bool in_blocks(loopir::Combiner combiner, DType type) const {
        return block_ > 0 && combiner == loopir::Combiner::sum && is_floating(type);
    }
    ValueId sum_of(const AccumulatorSlot& slot) {
        return slot.total < 0 ? b_.acc_read(slot.id) : b_.cast(b_.acc_read(slot.total), slot.type);
    }

    // Adds up the partial results of `count` chunks, or of those below a limit.
    void combine_chunks(const Dim& count, const std::optional<Index>& limit) {
        const Index chunk = begin_loop("chunk", {"chunk", count}, limit);
        for (auto& [op, accumulators] : accumulators_) {
            for (std::size_t k = 0; k < accumulators.size(); ++k) {
                if (accumulators[k].position) continue;
                const bool has_position = k + 1 < accumulators.size() && accumulators[k + 1].position;
                const ValueId value = b_.load(partial_buffer(op, k, false), partial_offset(chunk));
                const ValueId position =
                    has_position ? b_.load(partial_buffer(op, k + 1, false), partial_offset(chunk)) : no_value;
                const AccumulatorSlot& slot = accumulators[k];
                if (slot.total < 0) {
                    b_.accumulate(slot.id, value, position);
                } else {
                    b_.accumulate(slot.total, b_.cast(value, DType::float64));
                }
            }
        }
        b_.end_loop();
    }

    // --- Loops.

    // Row values of unknown size are not kept where there is a limit: it must hold for every run.
    void choose_kept() {
        std::int64_t left = schedule_.row_bytes;
        for (OpId op : find_kept(partition_, region_, phases_)) {
            const Dim bytes = row_elements(op) * Dim(static_cast<std::int64_t>(size_of(stored_dtype(local_dtype(op)))));
            const bool limited = left < std::numeric_limits<std::int64_t>::max();
            if (limited && (!bytes.is_known() || bytes.value() > left)) continue;
            if (limited) left -= bytes.value();
            kept_.insert(op);
        }
    }
    Dim row_elements(OpId op) const {
        Dim elements = is_complex(dtype(op)) ? 2 : 1;
        for (const LoopSpec& loop : schedule_.rows) elements = elements * loop.extent;
        return elements;
    }

    void set_loop(std::size_t position, const Index& index) {
        loops_[position] = index;
        moved();
    }
    void open_outer(bool parallel = true) { open_outer(parallel, schedule_.outer.size()); }
    void open_outer(bool parallel, std::size_t count) {
        for (std::size_t k = 0; k < count; ++k) {
            LoopSpec spec = schedule_.outer[k];
            spec.parallel = spec.parallel && parallel;
            if (spec.limit) spec.limit = over_kernel(*spec.limit);
            set_loop(k, begin_loop(spec.name, spec, spec.limit));
        }
    }
    void close_outer() {
        for (std::size_t k = 0; k < schedule_.outer.size(); ++k) b_.end_loop();
    }
    void open_rows(std::size_t first = 0) {
        for (std::size_t k = first; k < schedule_.rows.size(); ++k) open_row(k, schedule_.rows[k], 0);
    }
    // Row loop `k`, its variable counted from `base`; the innermost one in blocks if there are sums in blocks.
    // `end`: where it ends, if not at the extent.
    void open_row(std::size_t k, LoopSpec spec, const Index& base, const std::optional<Index>& end = std::nullopt) {
        const bool blocks = k + 1 == schedule_.rows.size() && has_blocks();
        Index first = base;
        std::optional<Index> limit = end;
        bases_.clear();
        if (blocks) {
            const Dim extent = spec.extent;
            const Index block = begin_loop("block", {"block", ceil_div(extent, block_)});
            first = base + block * Dim(block_);
            limit = (end ? *end : Index(extent)) - block * Dim(block_);
            if (!end && extent.is_known() && extent.value() % block_ == 0) limit.reset();
            spec.extent = Dim(block_);
            for (auto& [op, slots] : accumulators_) {
                for (const AccumulatorSlot& slot : slots) {
                    if (slot.total < 0) continue;
                    b_.init_acc(slot.id);
                    if (access(op).scan) bases_[slot.id] = b_.cast(b_.acc_read(slot.total), slot.type);
                }
            }
        }
        const Index position = first + begin_loop(spec.name, spec, limit);
        const Index last = Index(schedule_.rows[k].extent) - 1;
        set_loop(schedule_.outer.size() + k, backwards_ ? last - position : position);
    }
    bool has_blocks() const {
        for (const auto& [op, slots] : accumulators_) {
            for (const AccumulatorSlot& slot : slots) {
                if (slot.total >= 0) return true;
            }
        }
        return false;
    }
    void close_rows() {
        if (!schedule_.rows.empty() && has_blocks()) {
            b_.end_loop();
            for (auto& [op, slots] : accumulators_) {
                for (const AccumulatorSlot& slot : slots) {
                    if (slot.total >= 0) b_.accumulate(slot.total, b_.cast(b_.acc_read(slot.id), DType::float64));
                }
            }
        }
        for (std::size_t k = 0; k < schedule_.rows.size(); ++k) b_.end_loop();
    }

    Index region_var(VarId var) const override {
        return over_kernel(schedule_.region_vars[static_cast<std::size_t>(var)]);
    }
    // An index over the schedule's loops, over the kernel's.
    Index over_kernel(const Index& index) const {
        return index.substitute([this](VarId loop, const Dim&) { return loops_[static_cast<std::size_t>(loop)]; });
    }

    // Row values that are there already: running values, outputs, and those kept for a later pass.
    std::optional<Value> kept_value(OpId op) override {
        if (access(op).scan && phases_.pass.at(op) == pass_) return running_value(op);
        if (!phases_.row.at(op) || phases_.pass.at(op) >= pass_) return std::nullopt;
        if (is_output(op)) return load_element(b_, buffer({op, 0}, true), dtype(op), output_offset(op));
        if (kept_.contains(op)) return load_element(b_, local(op), local_dtype(op), row_offset());
        return std::nullopt;
    }

    // --- Passes.

    void begin_pass(int pass) {
        pass_ = pass;
        row_values_.clear();
        accumulators_.clear();
        for (const auto& [op, member] : region_.members) {
            if (!access(op).walks_row() || phases_.pass.at(op) != pass) continue;
            const OpNode& node = graph_.op(op);
            const NodeView view(graph_, node);
            const auto* reduce = std::get_if<ReduceBody>(&node.def->body);
            const loopir::Combiner combiner = reduce != nullptr
                                                  ? reduce->combiner(view.view)
                                                  : std::get<CumulativeBody>(node.def->body).combiner(view.view);
            const bool positional = combiner == loopir::Combiner::argmin || combiner == loopir::Combiner::argmax;
            // argmin/argmax accumulate values of the input's type; the result is their position.
            const DType type = compute_type(positional ? view.inputs[0].dtype : node.outputs[0].dtype);
            auto& slots = accumulators_[op];
            slots.push_back(new_slot(combiner, type));
            if (positional) slots.push_back({slots[0].id, DType::int64, true});
            if (is_complex(node.outputs[0].dtype)) slots.push_back(new_slot(combiner, type));
        }
    }

    AccumulatorSlot new_slot(loopir::Combiner combiner, DType type) {
        AccumulatorSlot slot{b_.add_accumulator(combiner, type), type};
        if (in_blocks(combiner, type)) slot.total = b_.add_accumulator(combiner, DType::float64);
        b_.init_acc(slot.total < 0 ? slot.id : slot.total);
        return slot;
    }

    // The inside of the row loops in the present pass.
    void row_pass() {
        row_values_.clear();
        for (OpId op : kept_) {
            if (phases_.pass.at(op) == pass_ && !is_output(op)) keep_in_local(op);
        }
        for (auto& [op, slots] : accumulators_) {
            if (access(op).scan) {
                member_value(op);
            } else {
                accumulate(op, slots);
            }
        }
        store_outputs([this](OpId op) { return phases_.row.at(op) && phases_.pass.at(op) == pass_; });
        row_values_.clear();
    }

    // What the chunks of a row come to.
    void totals_pass() {
        row_values_.clear();
        for (auto& [op, slots] : accumulators_) accumulate(op, slots);
        row_values_.clear();
    }

    void accumulate(OpId op, const std::vector<AccumulatorSlot>& slots) {
        Index along;
        const Value value = in_context(op, op, no_value, [&](ElementContext& context, const OpDef& def) {
            if (const auto* scan = std::get_if<CumulativeBody>(&def.body)) {
                along = home(op)[static_cast<std::size_t>(scan->axis(context.op))];
                return scan->element(context, home(op));
            }
            const auto& body = std::get<ReduceBody>(def.body);
            const Indices domain = reduce_domain(op, body, context.op);
            if (!domain.empty()) along = domain[0];
            return body.element(context, home(op), domain);
        });
        const bool positional = slots.size() > 1 && slots[1].position;
        b_.accumulate(slots[0].id, value.re, positional ? b_.index_value(along) : no_value);
        if (value.is_complex()) b_.accumulate(slots.back().id, value.im);
    }

    // Of a scan: all up to this element of the row. Sums in blocks go on from the sum of the blocks before, which is
    // rounded once, so that the error does not grow with the length.
    Value running_value(OpId op) {
        const std::vector<AccumulatorSlot>& slots = accumulators_.at(op);
        accumulate(op, slots);
        if (slots.size() > 1 && slots[1].position) {
            return {b_.cast(b_.acc_read(slots[0].id, 1), compute_type(dtype(op))), no_value};
        }
        const auto read = [this](const AccumulatorSlot& slot) {
            const ValueId value = b_.acc_read(slot.id);
            return slot.total < 0 ? value : b_.add(bases_.at(slot.id), value);
        };
        return {read(slots[0]), slots.size() > 1 ? read(slots[1]) : no_value};
    }

    void read_accumulators() {
        for (const auto& [op, slots] : accumulators_) {
            if (access(op).scan) continue;
            Value value;
            if (slots.size() > 1 && slots[1].position) {
                value.re = b_.cast(b_.acc_read(slots[0].id, 1), graph_.op(op).outputs[0].dtype);
            } else {
                value.re = sum_of(slots[0]);
                if (slots.size() > 1) value.im = sum_of(slots[1]);
            }
            outer_values_[op] = value;
        }
        // Members that follow are computed here, outside the next pass, and not once for each of its iterations.
        ++pass_;
        for (const auto& [op, member] : region_.members) {
            if (!phases_.row.at(op) && !access(op).walks_row() && phases_.pass.at(op) == pass_) member_value(op);
        }
    }

    void finish_outer() {
        pass_ = std::max(pass_, phases_.passes);
        store_outputs([this](OpId op) { return !phases_.row.at(op); });
        close_outer();
    }

    // Row values kept for a later pass: one element for each iteration of the row loops.
    Index row_offset() const {
        std::vector<std::pair<Index, Dim>> digits;
        for (std::size_t k = 0; k < schedule_.rows.size(); ++k) {
            digits.emplace_back(loops_[schedule_.outer.size() + k], schedule_.rows[k].extent);
        }
        return row_major(digits);
    }
    DType local_dtype(OpId op) const { return is_half(dtype(op)) ? DType::float32 : dtype(op); }
    int local(OpId op) {
        const auto found = locals_.find(op);
        if (found != locals_.end()) return found->second;
        BufferParam param;
        param.name = concat("row_", op);
        param.dtype = stored_dtype(local_dtype(op));
        param.role = BufferParam::Role::local;
        param.size = row_elements(op);
        result_.kept.push_back(op);
        return locals_[op] = add_buffer(param, {});
    }
    void keep_in_local(OpId op) { store_element(b_, local(op), local_dtype(op), row_offset(), member_value(op)); }

    // Partial results: [chunk, outer loops...], one buffer for each accumulator slot.
    Index partial_offset(const Index& chunk) const {
        std::vector<std::pair<Index, Dim>> digits{{chunk, Dim(schedule_.chunks)}};
        for (std::size_t k = 0; k < schedule_.outer.size(); ++k)
            digits.emplace_back(loops_[k], schedule_.outer[k].extent);
        return row_major(digits);
    }
    int partial_buffer(OpId op, std::size_t slot, bool writing) {
        const auto key = std::pair(op, slot);
        const auto found = partials_.find(key);
        if (found != partials_.end()) return found->second;
        Dim size = Dim(schedule_.chunks);
        for (const LoopSpec& loop : schedule_.outer) size = size * loop.extent;
        return partials_[key] = scratch_buffer(concat("partial_", op), static_cast<int>(partials_.size()),
                                               accumulators_.at(op)[slot].type, size, writing);
    }

    std::set<OpId> kept_;
    std::vector<Index> loops_;  // the schedule's loops over the kernel's variables
    Index chunk_ = 0;
    std::int64_t block_ = 0;  // iterations of the innermost row loop whose sum is added to a total; 0: all
    std::map<OpId, std::vector<AccumulatorSlot>> accumulators_;
    std::map<int, ValueId> bases_;  // of a scan's sum in blocks, by accumulator: the sum of the blocks before
    bool backwards_ = false;        // the row is walked from its end
    std::map<OpId, int> locals_;
    std::map<std::pair<OpId, std::size_t>, int> partials_;
};

}  // namespace

LoweredRegion lower(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name) {
    LoweredRegion result;
    if (schedule.attention) {
        lower_attention(program, partition, region, schedule, in_place, name, result);
    } else if (schedule.scatter) {
        lower_scatter(program, partition, region, schedule, in_place, name, result);
    } else if (schedule.sort) {
        lower_sort(program, partition, region, schedule, in_place, name, result);
    } else if (schedule.tiling) {
        lower_contraction(program, partition, region, schedule, in_place, name, result);
    } else if (schedule.chunks > 0) {
        result.kernels.push_back(
            NestWriter(program, partition, region, schedule, in_place, result).write_chunks(name + "_chunks"));
        NestWriter second(program, partition, region, schedule, in_place, result);
        result.kernels.push_back(schedule.scans ? second.write_scanned_chunks(name) : second.write_combination(name));
    } else {
        NestWriter writer(program, partition, region, schedule, in_place, result);
        const bool in_pieces = !schedule.outer.empty() && !schedule.outer.back().cuts.empty();
        result.kernels.push_back(in_pieces ? writer.write_pieces(name) : writer.write_whole(name));
    }
    return result;
}

}  // namespace topstitch::stitch
