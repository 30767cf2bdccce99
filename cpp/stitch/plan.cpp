// Makes the plan of a program: partitions, schedules and lowers it, decides which variables are updated in
// place, and assigns a buffer to everything.
#include <algorithm>
#include <set>

#include "stitch/phases.h"
#include "stitch/planner.h"

namespace topstitch::stitch {

Planner::Planner(Plan& plan, const PlannerSetup& setup, const Program& program, std::optional<Bindings> bindings,
                 std::string prefix, Planner* around)
    : plan_(plan),
      setup_(setup),
      program_(program),
      graph_(*program.graph),
      options_(setup.options),
      machine_(setup.machine),
      bindings_(std::move(bindings)),
      prefix_(std::move(prefix)),
      around_(around),
      partition_(partition(program, setup.options)) {
    for (const TensorRef ref : program.invariant) same_.insert(bound_buffer(ref));
}

int Planner::run() {
    block_ = static_cast<int>(plan_.blocks.size());
    plan_.blocks.emplace_back();
    find_read();
    choose_in_place();
    for (std::size_t r = 0; r < partition_.regions.size(); ++r) add_region(static_cast<int>(r));
    add_copies();
    report_refusals();
    return block_;
}

// A variable is updated in place when its new value is computed element by element where the old one was, and
// whoever else reads the old value has run by then.
void Planner::choose_in_place() {
    for (std::size_t s = 0; s < program_.states.size(); ++s) {
        const Program::State& state = program_.states[s];
        if (!state.assigned || state.after == state.before) continue;
        const int writer = partition_.region_of[static_cast<std::size_t>(state.after.op)];
        if (writer < 0 || in_place_.contains(state.after.op) || is_control(state.after.op)) continue;
        if (graph_.op(state.after.op).outputs.size() > 1) continue;  // which of them, in_place_ does not say
        if (can_replace(partition_.regions[static_cast<std::size_t>(writer)], writer, state)) {
            in_place_[state.after.op] = state.before;
        }
    }
}

bool Planner::can_replace(const Region& region, int writer, const Program::State& state) const {
    if (partition_.accesses[static_cast<std::size_t>(state.after.op)].is_sort) return false;  // reads all of a row
    const Member& target = region.members.at(state.after.op);
    const Phases phases = find_phases(partition_, region);
    const bool row = phases.row.at(state.after.op);
    // A later pass would read the new value.
    if (row && phases.pass.at(state.after.op) + 1 < phases.passes) return false;
    // An element that several iterations compute would be read again after the first of them has replaced it. (The base
    // of a scatter has loops of its own.)
    const bool scatters = partition_.accesses[static_cast<std::size_t>(state.after.op)].scatter.has_value();
    const auto is_constant = [](const Index& index) { return index.is_constant(); };
    if (scatters && std::all_of(target.home.begin(), target.home.end(), is_constant)) return false;
    for (std::size_t v = 0; v < region.vars.size() && !scatters; ++v) {
        if (region.vars[v].row && !row) continue;
        const auto used = [v](const Index& index) { return index.depends_on(static_cast<loopir::VarId>(v)); };
        if (std::none_of(target.home.begin(), target.home.end(), used)) return false;
    }
    for (OpId reader : partition_.readers[static_cast<std::size_t>(state.before.op)]) {
        const int where = partition_.region_of[static_cast<std::size_t>(reader)];
        if (where < writer) continue;
        if (where > writer) return false;
        for (const Request& request : partition_.accesses[static_cast<std::size_t>(reader)].requests) {
            if (!(request.tensor == state.before)) continue;
            if (request.dynamic || over_region(request.at, region.members.at(reader)) != target.home) return false;
        }
        // Computed again elsewhere in the region, it would be read at other indices too.
        for (const auto& [op, member] : region.members) {
            for (const Request& request : partition_.accesses[static_cast<std::size_t>(op)].requests) {
                if (request.tensor.op == reader && over_region(request.at, member) != region.members.at(reader).home)
                    return false;
            }
        }
    }
    return true;
}

void Planner::add_region(int number) {
    const Region& region = partition_.regions[static_cast<std::size_t>(number)];
    report_of_.push_back(static_cast<int>(plan_.regions.size()));
    if (is_control(region.members.begin()->first)) {
        add_control(region.members.begin()->first, region_name(region, number));
        return;
    }
    const Schedule schedule = choose_schedule(program_, partition_, region, options_, machine_);
    const std::string name = region_name(region, number);
    if (schedule.sort) {
        // A row that a run makes shorter than what is asked of it is refused.
        const NodeView sorted(graph_, graph_.op(region.members.rbegin()->first));
        const int axis = std::get<SortBody>(sorted.view.def().body).axis(sorted.view);
        plan_.extents.push_back(sorted.view.in_shape(0)[axis] - sorted.view.out_shape()[axis]);
    }
    const LoweredRegion lowered = lower(program_, partition_, region, schedule, in_place_, name);
    const int first_scratch = static_cast<int>(plan_.buffers.size());
    for (const LoweredRegion::Scratch& scratch : lowered.scratch) {
        PlanBuffer buffer;
        buffer.dtype = scratch.dtype;
        buffer.elements = scratch.size;
        buffer.first_use = buffer.last_use = setup_.clock;
        plan_.buffers.push_back(buffer);
    }
    const Dim work = lowered.work ? *lowered.work : work_of(region);
    for (const LoweredKernel& kernel : lowered.kernels) {
        PlanStep step;
        step.kernel = static_cast<int>(plan_.kernels.size());
        step.region = report_of_.back();
        for (const KernelArgument& argument : kernel.arguments) {
            step.buffers.push_back(argument.scratch >= 0 ? first_scratch + argument.scratch
                                                         : buffer_of(argument.tensor));
        }
        for (int id : step.buffers) use(id);
        step.sizes = loopir::size_params(kernel.kernel);
        step.parallel_extent = kernel.parallel_extent;
        step.work = work;
        step.counts = count(kernel.kernel);
        plan_.kernels.push_back(kernel.kernel);
        std::vector<int> written;
        std::size_t next = 0;
        for (const loopir::BufferParam& param : kernel.kernel.buffers) {
            if (param.role == loopir::BufferParam::Role::local) continue;
            const bool only_written = param.role == loopir::BufferParam::Role::output;
            if (only_written && kernel.arguments[next].scratch >= 0) written.push_back(step.buffers[next]);
            ++next;
        }
        if (is_early(step, written)) {
            add_early(std::move(step), written);
        } else {
            add_step(std::move(step));
        }
    }
    report_region(region, schedule, lowered, name);
}

// What reads only what is the same in all iterations, and writes only scratch memory (it packs a factor, say), is done
// once, in front of the loop.
bool Planner::is_early(const PlanStep& step, const std::vector<int>& written) const {
    if (!program_.repeats || written.empty()) return false;
    return std::all_of(step.buffers.begin(), step.buffers.end(), [&](int buffer) {
        const bool is_constant = plan_.buffers[static_cast<std::size_t>(buffer)].kind == PlanBuffer::Kind::constant;
        return is_constant || same_.contains(buffer) ||
               std::find(written.begin(), written.end(), buffer) != written.end();
    });
}

void Planner::add_early(PlanStep step, const std::vector<int>& written) {
    same_.insert(written.begin(), written.end());
    if (around_->is_early(step, written)) return around_->add_early(std::move(step), written);
    around_->add_in_front(std::move(step), written);
}

// Of the loop that is being planned, whose step is the last one so far.
void Planner::add_in_front(PlanStep step, const std::vector<int>& written) {
    for (const int buffer : written) plan_.buffers[static_cast<std::size_t>(buffer)].first_use = begun_;
    outlasting_.insert(outlasting_.end(), step.buffers.begin(), step.buffers.end());
    std::vector<int>& steps = plan_.blocks[static_cast<std::size_t>(block_)].steps;
    steps.insert(steps.end() - 1, static_cast<int>(plan_.steps.size()));
    plan_.steps.push_back(std::move(step));
}

Dim Planner::work_of(const Region& region) const {
    Dim iterations = 1;
    for (const RegionVar& var : region.vars) iterations = iterations * var.extent;
    const double cost = 1 + cost_of(partition_, region);
    return iterations * Dim(std::max<std::int64_t>(static_cast<std::int64_t>(cost), 1));
}

int Planner::buffer_of(TensorRef ref) {
    // An output in place of a variable is that variable's buffer.
    if (const auto replaced = in_place_.find(ref.op); replaced != in_place_.end()) ref = replaced->second;
    const auto found = buffers_.find(ref);
    if (found != buffers_.end()) return found->second;
    if (const int bound = bound_buffer(ref); bound >= 0) return buffers_[ref] = bound;
    PlanBuffer buffer = arena_buffer(graph_.type(ref));
    const OpNode& node = graph_.op(ref.op);
    const auto position = [&ref](const std::vector<TensorRef>& refs) { return position_of(ref, refs); };
    if (node.def->name == "placeholder") {
        buffer.kind = PlanBuffer::Kind::feed;
        buffer.index = position(program_.feeds);
    } else if (node.def->name == "variable") {
        buffer.kind = PlanBuffer::Kind::variable;
        const auto state = std::find_if(program_.states.begin(), program_.states.end(),
                                        [&ref](const Program::State& s) { return s.before == ref; });
        internal_check(state != program_.states.end(), "a variable is not among the program's states");
        buffer.index = static_cast<int>(state - program_.states.begin());
    } else if (node.def->name == "constant") {
        buffer.kind = PlanBuffer::Kind::constant;
        buffer.index = static_cast<int>(plan_.constants.size());
        plan_.constants.push_back(std::get<NDArray>(node.attributes[0]).contiguous());
    } else if (const int result = position(program_.results); result >= 0) {
        buffer.kind = PlanBuffer::Kind::result;
        buffer.index = result;
    }
    return buffers_[ref] = add_buffer(buffer);
}

int Planner::position_of(TensorRef ref, const std::vector<TensorRef>& refs) {
    const auto at = std::find(refs.begin(), refs.end(), ref);
    return at == refs.end() ? -1 : static_cast<int>(at - refs.begin());
}

// In a body: the buffer around it that a parameter or a result is; -1 for what is the body's own.
int Planner::bound_buffer(TensorRef ref) const {
    if (!bindings_) return -1;
    for (std::size_t k = 0; k < program_.states.size(); ++k) {
        if (program_.states[k].before == ref) return bindings_->states[k];
    }
    if (const int feed = position_of(ref, program_.feeds); feed >= 0)
        return bindings_->feeds[static_cast<std::size_t>(feed)];
    const int result = position_of(ref, program_.results);
    return result >= 0 ? bindings_->results[static_cast<std::size_t>(result)] : -1;
}

PlanBuffer Planner::arena_buffer(const TensorType& type) const {
    PlanBuffer buffer;
    buffer.dtype = type.dtype;
    buffer.elements = type.shape.num_elements();
    buffer.first_use = buffer.last_use = setup_.clock;
    return buffer;
}

int Planner::add_buffer(const PlanBuffer& buffer) {
    plan_.buffers.push_back(buffer);
    return static_cast<int>(plan_.buffers.size()) - 1;
}

void Planner::use(int buffer) {
    plan_.buffers[static_cast<std::size_t>(buffer)].last_use = setup_.clock;
}

void Planner::add_step(PlanStep step) {
    plan_.blocks[static_cast<std::size_t>(block_)].steps.push_back(static_cast<int>(plan_.steps.size()));
    plan_.steps.push_back(std::move(step));
    ++setup_.clock;
}

bool Planner::is_control(OpId op) const {
    return partition_.accesses[static_cast<std::size_t>(op)].is_control;
}

// Which tensors somebody outside of their region needs in memory.
void Planner::find_read() {
    for (const OpAccess& access : partition_.accesses) {
        for (const Request& request : access.requests) read_.insert(request.tensor);
    }
    read_.insert(program_.results.begin(), program_.results.end());
    for (const Program::State& state : program_.states) {
        if (state.assigned) read_.insert(state.after);
    }
}

void Planner::add_copies() {
    for (const Program::State& state : program_.states) {
        if (!state.assigned) continue;
        const auto replaced = in_place_.find(state.after.op);
        if (replaced != in_place_.end() && replaced->second == state.before) continue;
        copy(buffer_of(state.after), buffer_of(state.before));
    }
    for (std::size_t k = 0; k < program_.results.size(); ++k) {
        const int source = buffer_of(program_.results[k]);
        if (bindings_) {
            if (source != bindings_->results[k]) copy(source, bindings_->results[k]);
            continue;
        }
        const PlanBuffer& buffer = plan_.buffers[static_cast<std::size_t>(source)];
        if (buffer.kind == PlanBuffer::Kind::result && buffer.index == static_cast<int>(k)) continue;
        PlanBuffer target = buffer;
        target.kind = PlanBuffer::Kind::result;
        target.index = static_cast<int>(k);
        copy(source, add_buffer(target));
    }
    ++setup_.clock;
}

bool Planner::is_packed(int buffer) const {
    const PlanBuffer& result = plan_.buffers[static_cast<std::size_t>(buffer)];
    return result.kind != PlanBuffer::Kind::result || program_.layouts.empty() ||
           !program_.layouts[static_cast<std::size_t>(result.index)];
}

void Planner::copy(int from, int to) {
    internal_check(is_packed(from) && is_packed(to), "a strided result is to be copied");
    use(from);
    use(to);
    plan_.blocks[static_cast<std::size_t>(block_)].copies.push_back({from, to});
}

// --- The report.

std::string Planner::region_name(const Region& region, int number) const {
    std::string name = concat(prefix_, "k", number);
    int listed = 0;
    for (auto at = region.members.rbegin(); at != region.members.rend() && listed < 1; ++at, ++listed) {
        name += concat("_", at->first);
    }
    return name;
}

std::string Planner::describe(OpId op) const {
    const OpNode& node = graph_.op(op);
    std::string text = node.def->name;
    if (!node.name.empty()) text += concat(" '", node.name, "'");
    if (node.location.known()) text += concat(" (", node.location.str(), ")");
    return text;
}

Dim Planner::bytes_of(TensorRef ref) const {
    const TensorType& type = graph_.type(ref);
    return type.shape.num_elements() * Dim(static_cast<std::int64_t>(size_of(type.dtype)));
}

Dim Planner::bytes_of_results(OpId op) const {
    Dim bytes = 0;
    for (std::size_t k = 0; k < graph_.op(op).outputs.size(); ++k) {
        bytes = bytes + bytes_of({op, static_cast<std::int32_t>(k)});
    }
    return bytes;
}

void Planner::report_region(const Region& region, const Schedule& schedule, const LoweredRegion& lowered,
                            const std::string& name) {
    RegionReport report;
    report.name = name;
    report.schedule = schedule.attention ? str(*schedule.attention)
                      : schedule.scatter ? str(*schedule.scatter)
                      : schedule.sort    ? str(*schedule.sort)
                      : schedule.tiling  ? str(*schedule.tiling, region)
                                         : schedule.str();
    std::set<TensorRef> read;
    for (const auto& [op, member] : region.members) {
        report.operations.push_back(describe(op));
        for (const Request& request : partition_.accesses[static_cast<std::size_t>(op)].requests) {
            if (!region.members.contains(request.tensor.op) && !is_scalar_constant(graph_, request.tensor))
                read.insert(request.tensor);
        }
        const bool stored = std::find(region.outputs.begin(), region.outputs.end(), op) != region.outputs.end();
        if (stored) { report.bytes_written = report.bytes_written + bytes_of_results(op); }
        // Operation by operation, each tensor would be written once and read once for each of its readers.
        std::int64_t uses = stored ? 0 : 1;
        for (OpId reader : partition_.readers[static_cast<std::size_t>(op)])
            uses += region.members.contains(reader) ? 1 : 0;
        report.bytes_saved = report.bytes_saved + bytes_of_results(op) * Dim(uses);
        if (const auto replaced = in_place_.find(op); replaced != in_place_.end()) {
            report.in_place.push_back(describe(replaced->second.op));
        }
    }
    for (TensorRef ref : read) report.bytes_read = report.bytes_read + bytes_of(ref);
    for (OpId op : lowered.kept) report.kept.push_back(describe(op));
    plan_.regions.push_back(std::move(report));
}

void Planner::report_refusals() {
    std::set<std::pair<OpId, int>> told;  // once for each tensor and region that reads it
    for (const Refusal& refusal : partition_.refusals) {
        const int a = partition_.region_of[static_cast<std::size_t>(refusal.producer)];
        const int b = partition_.region_of[static_cast<std::size_t>(refusal.consumer)];
        if (a == b || !told.insert({refusal.producer, b}).second) continue;  // or another edge joined them
        const auto place = [this](OpId op, int region) {
            const int entry = report_of_[static_cast<std::size_t>(region)];
            return concat(describe(op), " [", plan_.regions[static_cast<std::size_t>(entry)].name, "]");
        };
        plan_.refusals.push_back(concat("kept apart: ", place(refusal.producer, a), " and ", place(refusal.consumer, b),
                                        ", because ", refusal.reason));
    }
}

Plan make_plan(const Program& program, const StitchOptions& options, const Machine& machine) {
    Plan plan;
    for (const TensorRef result : program.results) plan.results.push_back(program.graph->type(result));
    int clock = 0;
    Planner(plan, {options, machine, clock}, program, std::nullopt, "").run();
    return plan;
}

}  // namespace topstitch::stitch
