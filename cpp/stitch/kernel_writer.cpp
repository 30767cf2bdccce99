// Values, buffers and stores of a region's kernels.
// See kernel_writer.h.
#include "stitch/kernel_writer.h"

#include <algorithm>

namespace topstitch::stitch {

using loopir::BufferParam;
using loopir::no_value;
using loopir::ValueId;
using loopir::VarId;

Index row_major(const std::vector<std::pair<Index, Dim>>& digits) {
    Index offset = 0;
    for (const auto& [index, extent] : digits) offset = offset * extent + index;
    return offset;
}

KernelWriter::KernelWriter(const Program& program, const Partition& partition, const Region& region,
                           const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
    : program_(program),
      graph_(*program.graph),
      partition_(partition),
      region_(region),
      schedule_(schedule),
      in_place_(in_place),
      result_(result),
      phases_(find_phases(partition, region)) {}

// --- Loops.

Index KernelWriter::begin_loop(const std::string& name, const LoopSpec& spec, const std::optional<Index>& limit) {
    specs_.push_back(spec);
    return b_.begin_loop(name, spec.extent, limit);
}

void KernelWriter::close(int loops) {
    for (int k = 0; k < loops; ++k) b_.end_loop();
}

void KernelWriter::forget_values() {
    moved();
    row_values_.clear();
    outer_values_.clear();
    recomputed_.clear();
}

// A region-level index over the loops that are open now.
Index KernelWriter::over_loops(const Index& index) const {
    return index.substitute([this](VarId var, const Dim&) { return region_var(var); });
}

const Indices& KernelWriter::home(OpId op) {
    const auto found = homes_.find(op);
    if (found != homes_.end()) return found->second;
    Indices at;
    for (const Index& index : region_.members.at(op).home) at.push_back(over_loops(index));
    return homes_.emplace(op, std::move(at)).first->second;
}

// --- Values.

bool KernelWriter::is_output(OpId op) const {
    return std::find(region_.outputs.begin(), region_.outputs.end(), op) != region_.outputs.end();
}

Indices KernelWriter::reduce_domain(OpId op, const ReduceBody& body, const OpView& view) const {
    const Member& member = region_.members.at(op);
    Indices domain;
    auto next = static_cast<std::size_t>(access(op).num_out);
    for (const Dim& extent : body.domain(view)) {
        domain.push_back(extent == Dim(1) ? Index(0) : over_loops(member.own[next++]));
    }
    return domain;
}

Value KernelWriter::in_context(OpId op, OpId reader, ValueId guard,
                               const std::function<Value(ElementContext&, const OpDef&)>& use) {
    const OpId outer_reader = std::exchange(reader_, reader);
    const OpNode& node = graph_.op(op);
    const NodeView view(graph_, node);
    FunctionContext context(
        b_, view.view,
        [this, &node](int k, const Indices& at, ValueId inner) {
            return operand(node.inputs[static_cast<std::size_t>(k)], at, inner);
        },
        guard);
    const Value value = use(context, *node.def);
    reader_ = outer_reader;
    return value;
}

bool KernelWriter::reads_at_home(OpId reader, OpId producer) const {
    if (reader < 0) return false;
    const Indices& wanted = region_.members.at(producer).home;
    bool reads = false;
    for (const Request& request : access(reader).requests) {
        if (request.tensor.op != producer) continue;
        if (over_region(request.at, region_.members.at(reader)) != wanted) return false;
        reads = true;
    }
    return reads;
}

Value KernelWriter::operand(TensorRef ref, const Indices& at, ValueId guard) {
    if (is_scalar_constant(graph_, ref)) return constant(ref);
    const bool member = region_.members.contains(ref.op);
    if (member && !region_.members.at(ref.op).partial && (at == home(ref.op) || reads_at_home(reader_, ref.op))) {
        return member_value(ref.op);
    }
    if (member || access(ref.op).inlined) return computed(ref.op, at, guard);
    return load_element(b_, buffer(ref, false), graph_.type(ref).dtype, memory_offset(program_, ref, at), guard);
}

Value KernelWriter::constant(TensorRef ref) {
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

Value KernelWriter::member_value(OpId op) {
    auto& values = phases_.row.at(op) ? row_values_ : outer_values_;
    if (const auto found = values.find(op); found != values.end()) return found->second;
    internal_check(!access(op).is_reduce, "a reduction is read before it is done");
    const std::optional<Value> kept = kept_value(op);
    const Value value = kept ? *kept : element(op, home(op), guard_);
    values[op] = value;
    return value;
}

Value KernelWriter::computed(OpId op, const Indices& at, ValueId guard) {
    for (const Recomputed& known : recomputed_) {
        if (known.op == op && known.guard == guard && known.pass == pass_ && known.depth == b_.depth() &&
            known.at == at)
            return known.value;
    }
    const Value value = element(op, at, guard);
    recomputed_.push_back({op, guard, pass_, b_.depth(), at, value});
    return value;
}

Value KernelWriter::element(OpId op, const Indices& at, ValueId guard) {
    const bool at_home = region_.members.contains(op) && at == home(op);
    const OpId reader = at_home ? op : access(op).inlined ? reader_ : -1;
    return in_context(op, reader, guard, [&at](ElementContext& context, const OpDef& def) {
        // A scan that gets here runs along an axis of one element.
        if (const auto* scan = std::get_if<CumulativeBody>(&def.body)) return scan_of_one(context, *scan, at);
        return std::get<ElementBody>(def.body).element(context, at);
    });
}

// --- Memory.

int KernelWriter::buffer(TensorRef ref, bool writing) {
    // An output that replaces a variable in place shares the variable's buffer.
    const auto replaced = in_place_.find(ref.op);
    if (replaced != in_place_.end() && is_output(ref.op)) ref = replaced->second;
    const auto found = slots_.find(ref);
    if (found != slots_.end()) return found->second;
    bool replaced_here = false;
    for (const auto& [output, input] : in_place_) replaced_here = replaced_here || (input == ref && is_output(output));
    const TensorType& type = graph_.type(ref);
    BufferParam param;
    param.name = graph_.op(ref.op).name.empty() ? concat("t", ref.op) : graph_.op(ref.op).name;
    param.dtype = stored_dtype(type.dtype);
    param.size = memory_size(program_, ref) * Dim(is_complex(type.dtype) ? 2 : 1);
    const bool read_back = writing && region_.members.contains(ref.op) && phases_.row.at(ref.op) &&
                           phases_.pass.at(ref.op) + 1 < phases_.passes;
    const bool read_and_written = writing && access(ref.op).scatter.has_value();
    param.role = replaced_here || read_back || read_and_written ? BufferParam::Role::inout
                 : writing                                      ? BufferParam::Role::output
                                                                : BufferParam::Role::input;
    const int slot = add_buffer(param, {ref, -1});
    slots_[ref] = slot;
    return slot;
}

int KernelWriter::add_buffer(const BufferParam& param, KernelArgument argument) {
    if (param.role != BufferParam::Role::local) arguments_.push_back(argument);
    return b_.add_buffer(param);
}

int KernelWriter::scratch_buffer(const std::string& name, int number, DType type, const Dim& size, bool writing) {
    BufferParam param;
    param.name = name;
    param.dtype = type;
    param.size = size;
    param.role = writing ? BufferParam::Role::output : BufferParam::Role::input;
    KernelArgument argument;
    argument.scratch = number;
    if (writing && number == static_cast<int>(result_.scratch.size())) result_.scratch.push_back({type, size});
    return add_buffer(param, argument);
}

int KernelWriter::local_buffer(const std::string& name, DType type, const Dim& elements) {
    BufferParam param;
    param.name = name;
    param.dtype = type;
    param.role = BufferParam::Role::local;
    param.size = elements;
    return add_buffer(param, {});
}

// --- Sums of products in panels.

Index KernelWriter::PackedPanels::offset(const Index& panel, const Index& element, const Index& step) const {
    return in_lanes ? (panel * depth + step) * Dim(width) + element : (panel * Dim(width) + element) * depth + step;
}

KernelWriter::PanelPlace KernelWriter::begin_panel(std::int64_t rows, std::int64_t columns, int rows_together,
                                                   int vectors) {
    const Index row = begin_loop("i", {"i", Dim(rows), false, false, rows_together});
    const Index column = begin_loop("j", {"j", Dim(columns), false, true, vectors});
    return {row, column};
}

void KernelWriter::store_outputs(const std::function<bool(OpId)>& due) {
    std::vector<std::pair<OpId, Value>> values;
    for (OpId op : region_.outputs) {
        if (due(op)) values.emplace_back(op, member_value(op));
    }
    for (const auto& [op, value] : values) {
        const int slot = buffer({op, 0}, true);
        if (schedule_.streaming) streamed_.insert(slot);
        store_element(b_, slot, dtype(op), output_offset(op), value, guard_);
    }
}

// --- The end.

void KernelWriter::decorate(loopir::Block& block, LoweredKernel& lowered) const {
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

LoweredKernel KernelWriter::finish(const std::string& name) {
    LoweredKernel lowered;
    lowered.kernel = b_.finish(name);
    lowered.arguments = std::move(arguments_);
    decorate(lowered.kernel.body, lowered);
    return lowered;
}

}  // namespace topstitch::stitch
