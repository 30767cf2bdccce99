// Plans loops and branches: their functions become blocks of the same plan, whose parameters and results are buffers
// around them. Carried tensors are the states of a body, updated in place where variables would be.
#include <algorithm>

#include "ops/control.h"
#include "passes/bodies.h"
#include "passes/passes.h"
#include "passes/specialize.h"
#include "stitch/planner.h"

namespace topstitch::stitch {

namespace {

// The results at `kept` only.
void keep_results(Program& program, const std::vector<std::size_t>& kept) {
    std::vector<TensorRef> results;
    for (const std::size_t k : kept) results.push_back(program.results[k]);
    program.results = std::move(results);
}

// The feeds [first, first + count) become states, whose new values are the first results.
void carry(Program& program, std::size_t first, std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) {
        Program::State state;
        state.before = program.feeds[first + k];
        state.after = program.results[k];
        state.assigned = !(state.before == state.after);
        program.states.push_back(std::move(state));
    }
    const auto begin = program.feeds.begin() + static_cast<std::ptrdiff_t>(first);
    program.feeds.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
    program.results.erase(program.results.begin(), program.results.begin() + static_cast<std::ptrdiff_t>(count));
}

// The feeds from `first` on are the same in all iterations.
void repeat(Program& program, std::size_t first) {
    program.repeats = true;
    program.invariant.assign(program.feeds.begin() + static_cast<std::ptrdiff_t>(first), program.feeds.end());
}

}  // namespace

void Planner::add_control(OpId op, const std::string& name) {
    const auto number = plan_.controls.size();
    plan_.controls.emplace_back();
    const auto report = plan_.regions.size();
    plan_.regions.emplace_back();
    PlanStep step;
    step.control = static_cast<int>(number);
    step.region = report_of_.back();
    PlanControl control;
    const std::string& kind = graph_.op(op).def->name;
    begun_ = setup_.clock;
    outlasting_.clear();
    for (const TensorRef input : graph_.op(op).inputs) outlasting_.push_back(buffer_of(input));
    for (std::size_t k = 0; k < graph_.op(op).outputs.size(); ++k) {
        const TensorRef output{op, static_cast<std::int32_t>(k)};
        if (read_.contains(output)) outlasting_.push_back(buffer_of(output));
    }
    add_step(std::move(step));
    if (kind == "if_else") {
        plan_branch(op, control, name);
    } else if (kind == "while_loop") {
        plan_while(op, control, name);
    } else {
        plan_scan(op, control, name);
    }
    for (const PlanCopy& copied : control.before) outlasting_.push_back(copied.to);
    for (const int buffer : {control.predicate, control.index}) {
        if (buffer >= 0) outlasting_.push_back(buffer);
    }
    for (const int buffer : outlasting_) use(buffer);
    ++setup_.clock;
    plan_.regions[report] = control_report(op, control, name);
    plan_.controls[number] = std::move(control);
}

int Planner::carried_buffer(OpId op, int k, PlanControl& control) {
    const int buffer = buffer_of({op, k});
    control.before.push_back({buffer_of(graph_.op(op).inputs[static_cast<std::size_t>(k)]), buffer});
    return buffer;
}

int Planner::slice_of(int whole, const TensorType& type, PlanControl& control) {
    PlanBuffer part = arena_buffer(type);
    part.kind = PlanBuffer::Kind::slice;
    const int buffer = add_buffer(part);
    control.slices.push_back({buffer, whole});
    return buffer;
}

int Planner::plan_body(Program body, Bindings bindings, const std::string& prefix) {
    require_decided(body);
    body = canonicalize_body(body, options_.stitch);
    require_decided(body);
    for (const OpNode& node : body.graph->ops) {
        for (const TensorType& type : node.outputs) {
            plan_.extents.insert(plan_.extents.end(), type.shape.dims().begin(), type.shape.dims().end());
        }
    }
    return Planner(plan_, setup_, body, std::move(bindings), prefix, this).run();
}

void Planner::plan_branch(OpId op, PlanControl& control, const std::string& name) {
    const OpNode& node = graph_.op(op);
    const NodeView view(graph_, node);
    const std::vector<TensorType> types = ops::parameter_types(view.view);
    control.kind = PlanControl::Kind::branch;
    control.predicate = buffer_of(node.inputs[0]);
    std::vector<std::size_t> kept;
    Bindings bindings;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
        const TensorRef output{op, static_cast<std::int32_t>(k)};
        if (!read_.contains(output)) continue;
        kept.push_back(k);
        bindings.results.push_back(buffer_of(output));
    }
    for (std::size_t k = 1; k < node.inputs.size(); ++k) bindings.feeds.push_back(buffer_of(node.inputs[k]));
    for (const char* branch : {"then", "otherwise"}) {
        Program body = specialize_function(view.view.function(branch), types, constant_captures(graph_, node));
        keep_results(body, kept);
        control.blocks.push_back(plan_body(std::move(body), bindings, concat(name, "_", branch, "_")));
    }
}

void Planner::plan_while(OpId op, PlanControl& control, const std::string& name) {
    const OpNode& node = graph_.op(op);
    const NodeView view(graph_, node);
    const std::vector<TensorType> types = ops::parameter_types(view.view);
    const auto carried = static_cast<std::size_t>(view.view.integer("carried"));
    control.kind = PlanControl::Kind::while_loop;
    control.predicate = add_buffer(arena_buffer({DType::boolean, Shape(std::vector<Dim>{})}));
    Bindings condition;
    for (std::size_t k = 0; k < carried; ++k)
        condition.feeds.push_back(carried_buffer(op, static_cast<int>(k), control));
    for (std::size_t k = carried; k < node.inputs.size(); ++k) condition.feeds.push_back(buffer_of(node.inputs[k]));
    Bindings bindings;
    bindings.states.assign(condition.feeds.begin(), condition.feeds.begin() + static_cast<std::ptrdiff_t>(carried));
    bindings.feeds.assign(condition.feeds.begin() + static_cast<std::ptrdiff_t>(carried), condition.feeds.end());
    condition.results = {control.predicate};

    const std::vector<const NDArray*> constants = constant_captures(graph_, node);
    Program decides = specialize_function(view.view.function("condition"), types, constants);
    repeat(decides, carried);
    control.condition = plan_body(std::move(decides), std::move(condition), name + "_condition_");
    Program body = specialize_function(view.view.function("body"), types, constants);
    repeat(body, carried);
    carry(body, 0, carried);
    control.blocks.push_back(plan_body(std::move(body), std::move(bindings), name + "_"));
}

void Planner::plan_scan(OpId op, PlanControl& control, const std::string& name) {
    const OpNode& node = graph_.op(op);
    const NodeView view(graph_, node);
    const ops::ScanLayout layout(view.view);
    const std::vector<TensorType> types = ops::parameter_types(view.view);
    const auto type_of = [&types](int parameter) { return types[static_cast<std::size_t>(parameter)]; };
    const auto read = [this, op](int output) { return read_.contains({op, output}); };
    control.kind = PlanControl::Kind::counted_loop;
    control.length = layout.length;
    control.reverse = view.view.flag("reverse");
    control.index = add_buffer(arena_buffer(type_of(0)));

    Bindings bindings;
    bindings.feeds.push_back(control.index);
    for (int k = 0; k < layout.carried; ++k) {
        const int carried = carried_buffer(op, k, control);
        bindings.states.push_back(carried);
        if (!read(layout.output_of_history(k))) continue;
        const int whole = buffer_of({op, layout.output_of_history(k)});
        control.history.push_back({carried, slice_of(whole, type_of(layout.parameter_of_carried(k)), control)});
    }
    for (int k = 0; k < layout.sequences; ++k) {
        const int whole = buffer_of(node.inputs[static_cast<std::size_t>(layout.carried + k)]);
        bindings.feeds.push_back(slice_of(whole, type_of(layout.parameter_of_sequence(k)), control));
    }
    for (std::size_t k = static_cast<std::size_t>(layout.carried + layout.sequences); k < node.inputs.size(); ++k)
        bindings.feeds.push_back(buffer_of(node.inputs[k]));

    Program body = specialize_function(view.view.function("body"), types, constant_captures(graph_, node));
    std::vector<std::size_t> kept;
    for (int k = 0; k < layout.carried; ++k) kept.push_back(static_cast<std::size_t>(k));
    for (int k = 0; k < layout.stacked; ++k) {
        const int output = layout.output_of_stacked(k);
        if (!read(output)) continue;
        kept.push_back(static_cast<std::size_t>(output));
        const TensorType part = body.graph->type(body.results[static_cast<std::size_t>(output)]);
        bindings.results.push_back(slice_of(buffer_of({op, output}), part, control));
    }
    keep_results(body, kept);
    repeat(body, 1 + static_cast<std::size_t>(layout.carried + layout.sequences));
    carry(body, 1, static_cast<std::size_t>(layout.carried));
    control.blocks.push_back(plan_body(std::move(body), std::move(bindings), name + "_"));
}

RegionReport Planner::control_report(OpId op, const PlanControl& control, const std::string& name) const {
    RegionReport report;
    report.name = name;
    report.operations.push_back(describe(op));
    switch (control.kind) {
        case PlanControl::Kind::branch:
            report.schedule = concat("either the kernels ", name, "_then_* or ", name, "_otherwise_*");
            break;
        case PlanControl::Kind::while_loop:
            report.schedule = concat("the kernels ", name, "_* while ", name, "_condition_* gives true");
            break;
        case PlanControl::Kind::counted_loop:
            report.schedule = concat("the kernels ", name, "_*, ", control.length.str(), " times",
                                     control.reverse ? ", backwards" : "");
            break;
    }
    return report;
}

}  // namespace topstitch::stitch
