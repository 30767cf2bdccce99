// Writes the loop nest of a region: loops from the schedule, values from the bodies of its members.
// See lower.h and phases.h.
#include "stitch/lower.h"

#include <algorithm>
#include <set>

#include "ops/element_lowering.h"
#include "stitch/phases.h"

namespace topstitch::stitch {

namespace {

using loopir::BufferParam;
using loopir::Builder;
using loopir::no_value;
using loopir::ValueId;
using loopir::VarId;

Index row_major(const std::vector<std::pair<Index, Dim>>& digits) {
    Index offset = 0;
    for (const auto& [index, extent] : digits) offset = offset * extent + index;
    return offset;
}

// Writes one kernel of a region.
class KernelWriter {
public:
    KernelWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                 const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
        : graph_(*program.graph),
          partition_(partition),
          region_(region),
          schedule_(schedule),
          in_place_(in_place),
          result_(result),
          phases_(find_phases(partition, region)),
          loops_(schedule.outer.size() + schedule.rows.size()) {
        for (OpId op : find_kept(partition, region, phases_)) kept_.insert(op);
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

    // First kernel of a split reduction: chunk c of the first row loop, accumulated into partial results.
    LoweredKernel write_chunks(const std::string& name) {
        chunk_ = begin_loop("chunk", Dim(schedule_.chunks), {"chunk", Dim(schedule_.chunks), true, false, 1});
        open_outer(false);
        begin_pass(0);
        const Dim length = floor_div(schedule_.rows[0].extent, Dim(schedule_.chunks));
        const Index step = begin_loop(schedule_.rows[0].name, length, schedule_.rows[0]);
        set_loop(schedule_.outer.size(), chunk_ * length + step);
        open_rows(1);
        row_pass();
        close_rows();
        for (auto& [op, accumulators] : accumulators_) {
            for (std::size_t k = 0; k < accumulators.size(); ++k) {
                const ValueId value =
                    accumulators[k].position ? b_.acc_read(accumulators[k].id, 1) : b_.acc_read(accumulators[k].id);
                b_.store(partial_buffer(op, k, true), partial_offset(chunk_), value);
            }
        }
        close_outer();
        b_.end_loop();
        return finish(name);
    }

    // Second kernel: combines the chunks and the rows that they left over, then everything that follows.
    LoweredKernel write_combination(const std::string& name) {
        open_outer();
        begin_pass(0);
        const Index chunk =
            begin_loop("chunk", Dim(schedule_.chunks), {"chunk", Dim(schedule_.chunks), false, false, 1});
        for (auto& [op, accumulators] : accumulators_) {
            for (std::size_t k = 0; k < accumulators.size(); ++k) {
                if (accumulators[k].position) continue;
                const bool has_position = k + 1 < accumulators.size() && accumulators[k + 1].position;
                const ValueId value = b_.load(partial_buffer(op, k, false), partial_offset(chunk));
                const ValueId position =
                    has_position ? b_.load(partial_buffer(op, k + 1, false), partial_offset(chunk)) : no_value;
                b_.accumulate(accumulators[k].id, value, position);
            }
        }
        b_.end_loop();
        const Dim length = floor_div(schedule_.rows[0].extent, Dim(schedule_.chunks));
        const Dim done = length * Dim(schedule_.chunks);
        LoopSpec rest = schedule_.rows[0];
        rest.extent = schedule_.rows[0].extent - done;
        rest.unroll = 1;
        rest.vector = false;
        const Index step = begin_loop(rest.name, rest.extent, rest);
        set_loop(schedule_.outer.size(), Index(done) + step);
        open_rows(1);
        row_pass();
        close_rows();
        read_accumulators();
        finish_outer();
        return finish(name);
    }

private:
    struct AccumulatorSlot {
        int id = -1;
        DType type = DType::float32;
        bool position = false;  // the position of an argmin/argmax, read from the same accumulator
    };

    // --- Loops.

    Index begin_loop(const std::string& name, const Dim& extent, const LoopSpec& spec) {
        const Index index = b_.begin_loop(name, extent);
        specs_.push_back(spec);
        return index;
    }
    void set_loop(std::size_t position, const Index& index) {
        loops_[position] = index;
        homes_.clear();
    }
    void open_outer(bool parallel = true) {
        for (std::size_t k = 0; k < schedule_.outer.size(); ++k) {
            LoopSpec spec = schedule_.outer[k];
            spec.parallel = spec.parallel && parallel;
            set_loop(k, begin_loop(spec.name, spec.extent, spec));
        }
    }
    void close_outer() {
        for (std::size_t k = 0; k < schedule_.outer.size(); ++k) b_.end_loop();
    }
    void open_rows(std::size_t first = 0) {
        for (std::size_t k = first; k < schedule_.rows.size(); ++k) {
            set_loop(schedule_.outer.size() + k,
                     begin_loop(schedule_.rows[k].name, schedule_.rows[k].extent, schedule_.rows[k]));
        }
    }
    void close_rows() {
        for (std::size_t k = 0; k < schedule_.rows.size(); ++k) b_.end_loop();
    }

    // A region-level index over the loops that are open now.
    Index over_loops(const Index& index) const {
        const auto loop = [this](VarId var, const Dim&) { return loops_[static_cast<std::size_t>(var)]; };
        return index.substitute([&](VarId var, const Dim&) {
            return schedule_.region_vars[static_cast<std::size_t>(var)].substitute(loop);
        });
    }
    const Indices& home(OpId op) {
        const auto found = homes_.find(op);
        if (found != homes_.end()) return found->second;
        Indices at;
        for (const Index& index : region_.members.at(op).home) at.push_back(over_loops(index));
        return homes_.emplace(op, std::move(at)).first->second;
    }

    // --- Passes.

    void begin_pass(int pass) {
        pass_ = pass;
        row_values_.clear();
        accumulators_.clear();
        for (const auto& [op, member] : region_.members) {
            if (!access(op).is_reduce || phases_.pass.at(op) != pass) continue;
            const OpNode& node = graph_.op(op);
            const NodeView view(graph_, node);
            const loopir::Combiner combiner = std::get<ReduceBody>(node.def->body).combiner(view.view);
            const bool positional = combiner == loopir::Combiner::argmin || combiner == loopir::Combiner::argmax;
            // argmin/argmax accumulate values of the input's type; the result is their position.
            const DType type = compute_type(positional ? view.inputs[0].dtype : node.outputs[0].dtype);
            auto& slots = accumulators_[op];
            slots.push_back({new_accumulator(combiner, type), type, false});
            if (positional) slots.push_back({slots[0].id, DType::int64, true});
            if (is_complex(node.outputs[0].dtype)) slots.push_back({new_accumulator(combiner, type), type, false});
        }
    }

    int new_accumulator(loopir::Combiner combiner, DType type) {
        const int id = b_.add_accumulator(combiner, type);
        b_.init_acc(id);
        return id;
    }

    // The inside of the row loops in the present pass.
    void row_pass() {
        row_values_.clear();
        for (OpId op : kept_) {
            if (phases_.pass.at(op) == pass_ && !is_output(op)) keep_in_local(op);
        }
        for (auto& [op, slots] : accumulators_) accumulate(op, slots);
        store_outputs([this](OpId op) { return phases_.row.at(op) && phases_.pass.at(op) == pass_; });
        row_values_.clear();
    }

    void accumulate(OpId op, const std::vector<AccumulatorSlot>& slots) {
        const OpNode& node = graph_.op(op);
        const NodeView view(graph_, node);
        FunctionContext context = make_context(op, node, view.view, no_value);
        const Member& member = region_.members.at(op);
        Indices domain;
        std::size_t next = static_cast<std::size_t>(access(op).num_out);
        for (const Dim& extent : std::get<ReduceBody>(node.def->body).domain(view.view)) {
            domain.push_back(extent == Dim(1) ? Index(0) : over_loops(member.own[next++]));
        }
        const Value value = std::get<ReduceBody>(node.def->body).element(context, home(op), domain);
        const bool positional = slots.size() > 1 && slots[1].position;
        b_.accumulate(slots[0].id, value.re, positional ? b_.index_value(domain[0]) : no_value);
        if (value.is_complex()) b_.accumulate(slots.back().id, value.im);
    }

    void read_accumulators() {
        for (const auto& [op, slots] : accumulators_) {
            Value value;
            if (slots.size() > 1 && slots[1].position) {
                value.re = b_.cast(b_.acc_read(slots[0].id, 1), graph_.op(op).outputs[0].dtype);
            } else {
                value.re = b_.acc_read(slots[0].id);
                if (slots.size() > 1) value.im = b_.acc_read(slots[1].id);
            }
            outer_values_[op] = value;
        }
        // Members that follow are computed here, outside the next pass, and not once for each of its iterations.
        ++pass_;
        for (const auto& [op, member] : region_.members) {
            if (!phases_.row.at(op) && !access(op).is_reduce && phases_.pass.at(op) == pass_) member_value(op);
        }
    }

    void finish_outer() {
        pass_ = std::max(pass_, phases_.passes);
        store_outputs([this](OpId op) { return !phases_.row.at(op); });
        close_outer();
    }

    // --- Values.

    const OpAccess& access(OpId op) const { return partition_.accesses[static_cast<std::size_t>(op)]; }
    bool is_output(OpId op) const {
        return std::find(region_.outputs.begin(), region_.outputs.end(), op) != region_.outputs.end();
    }

    FunctionContext make_context(OpId, const OpNode& node, const OpView& view, ValueId guard) {
        return FunctionContext(
            b_, view,
            [this, &node](int k, const Indices& at, ValueId inner) {
                return operand(node.inputs[static_cast<std::size_t>(k)], at, inner);
            },
            guard);
    }

    Value operand(TensorRef ref, const Indices& at, ValueId guard) {
        if (is_scalar_constant(graph_, ref)) return constant(ref);
        const bool member = region_.members.contains(ref.op);
        if (member && !region_.members.at(ref.op).partial && at == home(ref.op)) return member_value(ref.op);
        if (member || access(ref.op).inlined) return computed(ref.op, at, guard);
        const TensorType& type = graph_.type(ref);
        return load_element(b_, buffer(ref, false), type.dtype, row_major_offset(type.shape, at), guard);
    }

    Value constant(TensorRef ref) {
        const auto& array = std::get<NDArray>(graph_.op(ref.op).attributes[0]);
        const DType type = compute_type(array.dtype());
        if (is_complex(array.dtype())) {
            const NDArray packed = array.contiguous();
            return {b_.constant(packed.data_as<float>()[0], type), b_.constant(packed.data_as<float>()[1], type)};
        }
        if (is_integer(type)) {
            std::int64_t bits = 0;
            const NDArray packed = array.contiguous();
            switch (type) {
                case DType::uint64:
                    bits = static_cast<std::int64_t>(*packed.data_as<std::uint64_t>());
                    break;
                case DType::int64:
                    bits = *packed.data_as<std::int64_t>();
                    break;
                default:
                    bits = static_cast<std::int64_t>(packed.at(0));
            }
            return {b_.constant_int(bits, type), no_value};
        }
        return {b_.constant(array.at(0), type), no_value};
    }

    // A member where this iteration computes it.
    Value member_value(OpId op) {
        const bool row = phases_.row.at(op);
        auto& values = row ? row_values_ : outer_values_;
        if (const auto found = values.find(op); found != values.end()) return found->second;
        internal_check(!access(op).is_reduce, "a reduction is read before it is done");
        Value value;
        if (row && phases_.pass.at(op) < pass_ && (is_output(op) || kept_.contains(op))) {
            value = is_output(op) ? load_element(b_, buffer({op, 0}, true), dtype(op), output_offset(op))
                                  : load_element(b_, local(op), local_dtype(op), row_offset());
        } else {
            value = element(op, home(op), no_value);
        }
        values[op] = value;
        return value;
    }

    // An operation at any index: computed again there.
    Value computed(OpId op, const Indices& at, ValueId guard) {
        for (const Recomputed& known : recomputed_) {
            if (known.op == op && known.guard == guard && known.pass == pass_ && known.depth == b_.depth() &&
                known.at == at)
                return known.value;
        }
        const Value value = element(op, at, guard);
        recomputed_.push_back({op, guard, pass_, b_.depth(), at, value});
        return value;
    }

    Value element(OpId op, const Indices& at, ValueId guard) {
        const OpNode& node = graph_.op(op);
        const NodeView view(graph_, node);
        FunctionContext context = make_context(op, node, view.view, guard);
        return std::get<ElementBody>(node.def->body).element(context, at);
    }

    // --- Memory.

    DType dtype(OpId op) const { return graph_.op(op).outputs[0].dtype; }
    static DType stored_dtype(DType dtype) { return is_complex(dtype) ? DType::float32 : dtype; }

    int buffer(TensorRef ref, bool writing) {
        // An output that replaces a variable in place shares the variable's buffer.
        const auto replaced = in_place_.find(ref.op);
        if (replaced != in_place_.end() && is_output(ref.op)) ref = replaced->second;
        const auto found = slots_.find(ref);
        if (found != slots_.end()) return found->second;
        bool replaced_here = false;
        for (const auto& [output, input] : in_place_)
            replaced_here = replaced_here || (input == ref && is_output(output));
        const TensorType& type = graph_.type(ref);
        BufferParam param;
        param.name = graph_.op(ref.op).name.empty() ? concat("t", ref.op) : graph_.op(ref.op).name;
        param.dtype = stored_dtype(type.dtype);
        param.size = type.shape.num_elements() * Dim(is_complex(type.dtype) ? 2 : 1);
        const bool read_back = writing && region_.members.contains(ref.op) && phases_.row.at(ref.op) &&
                               phases_.pass.at(ref.op) + 1 < phases_.passes;
        param.role = replaced_here || read_back ? BufferParam::Role::inout
                     : writing                  ? BufferParam::Role::output
                                                : BufferParam::Role::input;
        const int slot = add_buffer(param, {ref, -1});
        slots_[ref] = slot;
        return slot;
    }

    int add_buffer(const BufferParam& param, KernelArgument argument) {
        if (param.role != BufferParam::Role::local) arguments_.push_back(argument);
        return b_.add_buffer(param);
    }

    Index output_offset(OpId op) { return row_major_offset(graph_.op(op).outputs[0].shape, home(op)); }

    // All values are computed before the first store: an output may replace a variable in place, and nothing may
    // read the variable's new value by mistake.
    template <typename Predicate>
    void store_outputs(Predicate due) {
        std::vector<std::pair<OpId, Value>> values;
        for (OpId op : region_.outputs) {
            if (due(op)) values.emplace_back(op, member_value(op));
        }
        for (const auto& [op, value] : values) {
            const int slot = buffer({op, 0}, true);
            if (schedule_.streaming) streamed_.insert(slot);
            store_element(b_, slot, dtype(op), output_offset(op), value);
        }
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
        param.size = Dim(is_complex(dtype(op)) ? 2 : 1);
        for (const LoopSpec& loop : schedule_.rows) param.size = param.size * loop.extent;
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
        BufferParam param;
        param.name = concat("partial_", op);
        param.dtype = accumulators_.at(op)[slot].type;
        param.size = Dim(schedule_.chunks);
        for (const LoopSpec& loop : schedule_.outer) param.size = param.size * loop.extent;
        param.role = writing ? BufferParam::Role::output : BufferParam::Role::input;
        KernelArgument argument;
        argument.scratch = static_cast<int>(partials_.size());
        if (writing) result_.scratch.push_back({param.dtype, param.size});
        return partials_[key] = add_buffer(param, argument);
    }

    // --- The end: the schedule's flags are written into the finished kernel.

    void decorate(loopir::Block& block, LoweredKernel& lowered) const {
        for (loopir::Stmt& stmt : block.stmts) {
            if (auto* loop = std::get_if<loopir::Loop>(&stmt)) {
                const LoopSpec& spec = specs_[static_cast<std::size_t>(loop->var)];
                loop->parallel = spec.parallel;
                loop->vector = spec.vector;
                loop->unroll = spec.unroll;
                if (spec.parallel) lowered.parallel_extent = loop->extent;
                decorate(loop->body.front(), lowered);
            } else if (auto* store = std::get_if<loopir::Store>(&stmt)) {
                store->streaming = streamed_.contains(store->buffer);
            }
        }
    }

    LoweredKernel finish(const std::string& name) {
        LoweredKernel lowered;
        lowered.kernel = b_.finish(name);
        lowered.arguments = std::move(arguments_);
        decorate(lowered.kernel.body, lowered);
        return lowered;
    }

    struct Recomputed {
        OpId op;
        ValueId guard;
        int pass;
        int depth;
        Indices at;
        Value value;
    };

    const GraphData& graph_;
    const Partition& partition_;
    const Region& region_;
    const Schedule& schedule_;
    const std::map<OpId, TensorRef>& in_place_;
    LoweredRegion& result_;
    Phases phases_;
    std::set<OpId> kept_;

    Builder b_;
    std::vector<LoopSpec> specs_;  // by variable of the kernel
    std::vector<Index> loops_;     // the schedule's loops over the kernel's variables
    Index chunk_ = 0;
    int pass_ = 0;
    std::map<OpId, Indices> homes_;
    std::map<OpId, Value> row_values_, outer_values_;
    std::vector<Recomputed> recomputed_;
    std::map<OpId, std::vector<AccumulatorSlot>> accumulators_;
    std::map<TensorRef, int> slots_;
    std::map<OpId, int> locals_;
    std::map<std::pair<OpId, std::size_t>, int> partials_;
    std::vector<KernelArgument> arguments_;
    std::set<int> streamed_;
};

}  // namespace

LoweredRegion lower(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name) {
    LoweredRegion result;
    if (schedule.chunks > 0) {
        result.kernels.push_back(
            KernelWriter(program, partition, region, schedule, in_place, result).write_chunks(name + "_chunks"));
        result.kernels.push_back(
            KernelWriter(program, partition, region, schedule, in_place, result).write_combination(name));
    } else {
        result.kernels.push_back(
            KernelWriter(program, partition, region, schedule, in_place, result).write_whole(name));
    }
    return result;
}

}  // namespace topstitch::stitch
