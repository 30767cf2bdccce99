// Selects what the targets need, re-infers every type from the feeds, and turns state into values:
// a read becomes the value before the run, or that of the assignment which control dependencies put before it.
#include "passes/specialize.h"

#include <algorithm>
#include <functional>

#include "ops/memory.h"

namespace topstitch {

namespace {

bool is_op(const OpNode& node, const char* name) {
    return node.def->name == name;
}

}  // namespace

std::vector<bool> reachable(const GraphData& graph, const std::vector<TensorRef>& targets,
                            const std::vector<OpId>& operations) {
    std::vector<bool> marked(graph.ops.size(), false);
    std::vector<OpId> stack(operations);
    for (TensorRef target : targets) stack.push_back(target.op);
    while (!stack.empty()) {
        const OpId id = stack.back();
        stack.pop_back();
        if (marked[static_cast<std::size_t>(id)]) continue;
        marked[static_cast<std::size_t>(id)] = true;
        const OpNode& node = graph.op(id);
        for (TensorRef input : node.inputs) stack.push_back(input.op);
        stack.insert(stack.end(), node.control.begin(), node.control.end());
    }
    return marked;
}

namespace {

// For one variable: which assignments precede which operation. Creation order is a topological order, so
// one sweep carries for each operation the latest assignment on any path into it.
class AssignmentOrder {
public:
    AssignmentOrder(const GraphData& graph, const std::vector<bool>& needed, OpId variable)
        : graph_(graph), latest_(graph.ops.size(), -1) {
        for (OpId id = variable; id < static_cast<OpId>(graph.ops.size()); ++id) {
            if (!needed[static_cast<std::size_t>(id)]) continue;
            const OpNode& node = graph.op(id);
            OpId latest = -1;
            for (TensorRef input : node.inputs) latest = later(latest, latest_[static_cast<std::size_t>(input.op)]);
            for (OpId before : node.control) latest = later(latest, latest_[static_cast<std::size_t>(before)]);
            if (is_op(node, "assign") && node.inputs[0].op == variable) {
                if (last_ >= 0 && latest != last_) unordered(id);
                last_ = latest = id;
            }
            latest_[static_cast<std::size_t>(id)] = latest;
        }
    }
    // The assignment that operation `id` comes after, or -1.
    OpId before(OpId id) const { return latest_[static_cast<std::size_t>(id)]; }
    OpId last() const { return last_; }

private:
    // Assignments of one variable are totally ordered, so the one created later is the later one.
    static OpId later(OpId a, OpId b) { return std::max(a, b); }
    [[noreturn]] void unordered(OpId second) const {
        const OpNode& node = graph_.op(second);
        const std::string& name = graph_.op(node.inputs[0].op).name;
        throw UserError(
            concat("[assign] variable ", name.empty() ? "(unnamed)" : "'" + name + "'",
                   " is assigned twice in this run and neither assignment comes after the other; create the "
                   "second one under control_dependencies([first])",
                   node.location.known() ? " (created at " + node.location.str() + ")" : ""));
    }
    const GraphData& graph_;
    std::vector<OpId> latest_;
    OpId last_ = -1;
};

// What the names of dims stand for, by the shapes of the feeds. Attributes may use these names too.
class NamedDims {
public:
    // Declared dims against those of the feed: binds names, and holds every other expression to what it says.
    void bind(const GraphData& graph, const std::vector<FeedType>& feeds) {
        const auto each = [&](const auto& visit) {
            for (const FeedType& feed : feeds) {
                for (const Shape& declared : {graph.type(feed.placeholder).shape, feed.declared}) {
                    if (!declared.has_rank()) continue;
                    for (int axis = 0; axis < declared.rank(); ++axis)
                        visit(graph.op(feed.placeholder.op), declared[axis], feed.shape[axis]);
                }
            }
        };
        each([this](const OpNode& node, const Dim& declared, const Dim& fed) {
            if (!declared.is_symbol()) return;
            const auto [known, fresh] = dims_.emplace(declared.symbol_name(), fed);
            if (!fresh) require_equal(node, declared, known->second, fed);
        });
        each([this](const OpNode& node, const Dim& declared, const Dim& fed) {
            if (declared.is_known() || declared.is_unknown() || !all_bound(declared)) return;
            require_equal(node, declared, replaced(declared), fed);
        });
    }

    // The attributes of `node` with names replaced. A dim left open (-1) that was inferred to be a number when the
    // graph was built is that number: an empty feed would not let it be inferred again.
    void resolve(OpNode& node, const TensorType& built) const {
        for (Attribute& attribute : node.attributes) {
            auto* shape = std::get_if<Shape>(&attribute);
            if (shape == nullptr || !shape->has_rank()) continue;
            const bool is_result = built.shape.has_rank() && built.shape.rank() == shape->rank();
            std::vector<Dim> dims = shape->dims();
            for (std::size_t axis = 0; axis < dims.size(); ++axis) {
                Dim& dim = dims[axis];
                if (is_result && dim.is_unknown() && built.shape[static_cast<int>(axis)].is_known())
                    dim = built.shape[static_cast<int>(axis)];
                if (!all_bound(dim)) fail_unbound(node, dim);
                dim = replaced(dim);
            }
            attribute = Shape(std::move(dims));
        }
        for (Attribute& attribute : node.attributes) {
            auto* function = std::get_if<FunctionPtr>(&attribute);
            if (function == nullptr) continue;
            attribute = with_changed_operations(**function, [this](OpNode& inner) {
                const bool is_given = is_op(inner, "placeholder") || is_op(inner, "constant");
                if (!is_given) resolve(inner, inner.outputs.at(0));
            });
        }
    }

private:
    bool all_bound(const Dim& dim) const {
        std::vector<std::string> names;
        dim.collect_symbols(names);
        return std::all_of(names.begin(), names.end(), [this](const auto& name) { return dims_.contains(name); });
    }
    Dim replaced(const Dim& dim) const {
        return dim.substitute([this](std::string_view name) { return dims_.find(name)->second; });
    }
    static std::string created(const OpNode& node) {
        return node.location.known() ? " (created at " + node.location.str() + ")" : "";
    }
    static void require_equal(const OpNode& node, const Dim& declared, const Dim& expected, const Dim& fed) {
        if (dims_agree(expected, fed)) return;
        throw UserError(concat("[run] the dim ", declared.str(), " of placeholder ",
                               node.name.empty() ? "(unnamed)" : "'" + node.name + "'", " is ", fed.str(),
                               ", but by the other feeds it is ", expected.str(), "; dims of one name must agree",
                               created(node)));
    }
    [[noreturn]] static void fail_unbound(const OpNode& node, const Dim& dim) {
        throw UserError(concat("[", node.def->name, "] the dim ", dim.str(),
                               " is not known in this run: no placeholder that is fed has a dim of this name; feed "
                               "one that has, or give the length",
                               created(node)));
    }
    std::map<std::string, Dim, std::less<>> dims_;
};

Layout make_layout(const std::vector<AxisStep>& steps, const Shape& shape) {
    const std::function<Dim(int)> stride = [&](int axis) {
        const AxisStep& step = steps[static_cast<std::size_t>(axis)];
        return step.past < 0 ? step.elements : stride(step.past) * shape[step.past];
    };
    std::vector<Dim> strides;
    std::vector<std::int64_t> reversed;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        strides.push_back(stride(axis));
        if (steps[static_cast<std::size_t>(axis)].back) reversed.push_back(axis);
    }
    return {Shape(std::move(strides)), std::move(reversed)};
}

// A placeholder for the memory that a feed spans, and the view of it that has the feed's shape.
std::pair<TensorRef, TensorRef> append_strided(GraphData& graph, OpNode placeholder, const FeedType& feed) {
    OpNode view;
    const Layout layout = make_layout(feed.steps, feed.shape);
    view.def = find_op("strided_view");
    view.attributes = {feed.shape, layout.strides, layout.reversed};
    view.outputs = {TensorType{feed.dtype, feed.shape}};
    view.name = placeholder.name;
    view.location = placeholder.location;
    placeholder.outputs = {TensorType{feed.dtype, Shape({ops::spanned(feed.shape, layout.strides)})}};
    const TensorRef memory{append(graph, std::move(placeholder)), 0};
    view.inputs = {memory};
    return {memory, TensorRef{append(graph, std::move(view)), 0}};
}

bool counts_runs(const OpNode& variable) {
    return OpView(*variable.def, {}, {}, variable.attributes).has("step");
}

// The value of a variable with a step after a run that does not assign it.
TensorRef next_count(const std::shared_ptr<GraphData>& graph, const OpNode& variable, TensorRef before) {
    const NDArray& step = OpView(*variable.def, {}, {}, variable.attributes).array("step");
    const Tensor amount = apply(graph, *find_op("constant"), {}, {{"value", step}}).front();
    return apply("add", {Tensor(graph, before), amount}).ref();
}

}  // namespace

std::int64_t HintedAssumptions::hint(const Dim& dim) {
    return dim.evaluate([this](std::string_view name) {
        const auto found = hints_.find(name);
        internal_check(found != hints_.end(), "a symbol has no present value");
        return found->second;
    });
}

void HintedAssumptions::assume_equal(const Dim& a, const Dim& b) {
    for (const DimEquality& known : record_) {
        if ((known.a == a && known.b == b) || (known.a == b && known.b == a)) return;
    }
    record_.push_back({a, b});
}

std::vector<TensorRef> needed_placeholders(const GraphData& graph, const std::vector<TensorRef>& targets,
                                           const std::vector<OpId>& operations) {
    const std::vector<bool> needed = reachable(graph, targets, operations);
    std::vector<TensorRef> placeholders;
    for (std::size_t id = 0; id < needed.size(); ++id) {
        if (needed[id] && is_op(graph.ops[id], "placeholder")) placeholders.push_back({static_cast<OpId>(id), 0});
    }
    return placeholders;
}

namespace {

void require_decided(const OpNode& node, const TensorType& type) {
    const bool decided = type.shape.has_rank() && std::none_of(type.shape.dims().begin(), type.shape.dims().end(),
                                                               [](const Dim& dim) { return dim.is_unknown(); });
    if (!decided) throw NeedsExactSizes(concat("[", node.def->name, "] its result ", type.str(), " is not decided"));
}

// Where the results lie. The arrays given for them are compared with the types first: their steps make no sense
// otherwise.
void add_layouts(const SpecializeRequest& request, HintedAssumptions& sizes, Program& program) {
    for (std::size_t k = 0; k < request.results.size(); ++k) {
        const ResultType& given = request.results[k];
        const TensorRef ref = program.results[k];
        const TensorType& type = program.graph->type(ref);
        require_decided(program.graph->op(ref.op), type);
        Sizes shape;
        for (const Dim& dim : type.shape.dims()) shape.push_back(sizes.hint(dim));
        check_result(k, type.dtype, shape, given.dtype, given.shape);
        program.layouts.emplace_back();
        if (!given.steps.empty()) program.layouts.back() = make_layout(given.steps, type.shape);
    }
}

}  // namespace

void require_decided(const Program& program) {
    for (const OpNode& node : program.graph->ops) {
        for (const TensorType& type : node.outputs) require_decided(node, type);
    }
}

Program specialize_function(const Function& function, const std::vector<TensorType>& types,
                            const std::vector<const NDArray*>& constants) {
    Program program;
    program.graph = std::make_shared<GraphData>();
    std::map<TensorRef, TensorRef> map;
    for (std::size_t k = 0; k < function.parameters.size(); ++k) {
        OpNode node = function.graph->op(function.parameters[k].op);
        if (constants[k] != nullptr) {
            node.def = find_op("constant");
            node.attributes = {*constants[k]};
        }
        node.outputs = {types[k]};
        const TensorRef made{append(*program.graph, std::move(node)), 0};
        map[function.parameters[k]] = made;
        program.feeds.push_back(made);
    }
    for (std::size_t id = 0; id < function.graph->ops.size(); ++id) {
        OpNode node = function.graph->ops[id];
        if (is_op(node, "placeholder")) continue;
        node.control.clear();
        std::vector<TensorType> inputs;
        for (TensorRef& input : node.inputs) {
            input = map.at(input);
            inputs.push_back(program.graph->type(input));
        }
        node.outputs = infer_types(*node.def, inputs, node.attributes, &node.location);
        const auto count = static_cast<std::int32_t>(node.outputs.size());
        const OpId made = append(*program.graph, std::move(node));
        for (std::int32_t k = 0; k < count; ++k) map[{static_cast<OpId>(id), k}] = {made, k};
    }
    for (const TensorRef result : function.results) program.results.push_back(map.at(result));
    return program;
}

void check_result(std::size_t k, DType dtype, const Sizes& shape, DType given_dtype, const Sizes& given_shape) {
    if (given_dtype == dtype && given_shape == shape) return;
    throw UserError(concat("[run] result ", k, " is ", name_of(dtype), sizes_str(shape), ", but the given array is ",
                           name_of(given_dtype), sizes_str(given_shape)));
}

UserError not_fed(const OpNode& node, OpId id) {
    return UserError(concat("[run] placeholder ", node.name.empty() ? concat("#", id) : "'" + node.name + "'",
                            " is needed by the targets, but no value was fed for it",
                            node.location.known() ? " (created at " + node.location.str() + ")" : ""));
}

Program specialize(const SpecializeRequest& request) {
    const GraphData& source = *request.graph;
    Program program;
    program.graph = std::make_shared<GraphData>();
    HintedAssumptions assumptions(request.hints, program.assumptions);
    const ScopedDimAssumptions scope(&assumptions);

    std::vector<bool> needed = reachable(source, request.targets, request.operations);
    // An assignment also needs its variable; a feed is a feed even when nothing needs it.
    for (const FeedType& feed : request.feeds) needed[static_cast<std::size_t>(feed.placeholder.op)] = true;

    std::map<OpId, AssignmentOrder> orders;
    for (std::size_t id = 0; id < needed.size(); ++id) {
        if (needed[id] && is_op(source.ops[id], "variable")) {
            const auto variable = static_cast<OpId>(id);
            orders.emplace(variable, AssignmentOrder(source, needed, variable));
        }
    }

    NamedDims names;
    names.bind(source, request.feeds);
    std::map<OpId, TensorRef> fed;  // the program's feeds, by placeholder

    std::vector<std::vector<TensorRef>> map(source.ops.size());
    const auto mapped = [&map](TensorRef ref) {
        return map[static_cast<std::size_t>(ref.op)][static_cast<std::size_t>(ref.output)];
    };
    for (std::size_t index = 0; index < needed.size(); ++index) {
        if (!needed[index]) continue;
        const auto id = static_cast<OpId>(index);
        const OpNode& node = source.ops[index];
        if (is_op(node, "assign")) {
            map[index] = {mapped(node.inputs[1])};  // the value that later reads see
            continue;
        }
        if (is_op(node, "read")) {
            const OpId variable = node.inputs[0].op;
            const OpId assignment = orders.at(variable).before(id);
            map[index] = {assignment >= 0 ? mapped({assignment, 0}) : mapped({variable, 0})};
            continue;
        }
        OpNode copy = node;
        copy.control.clear();
        for (TensorRef& input : copy.inputs) input = mapped(input);
        if (is_op(node, "placeholder")) {
            const auto feed = std::find_if(request.feeds.begin(), request.feeds.end(),
                                           [id](const FeedType& type) { return type.placeholder.op == id; });
            if (feed == request.feeds.end()) { throw not_fed(node, id); }
            if (!feed->steps.empty()) {
                const auto [memory, view] = append_strided(*program.graph, std::move(copy), *feed);
                fed[id] = memory;
                map[index] = {view};
                continue;
            }
            copy.outputs = {TensorType{feed->dtype, feed->shape}};
        } else if (!is_op(node, "constant") && !is_op(node, "variable")) {
            if (!node.outputs.empty()) names.resolve(copy, node.outputs[0]);
            std::vector<TensorType> inputs;
            for (TensorRef input : copy.inputs) inputs.push_back(program.graph->type(input));
            copy.outputs = infer_types(*node.def, inputs, copy.attributes, &node.location);
        }
        const auto count = static_cast<std::int32_t>(copy.outputs.size());
        const OpId fresh = append(*program.graph, std::move(copy));
        for (std::int32_t k = 0; k < count; ++k) map[index].push_back({fresh, k});
    }

    for (const FeedType& feed : request.feeds) {
        const auto memory = fed.find(feed.placeholder.op);
        program.feeds.push_back(memory != fed.end() ? memory->second : mapped(feed.placeholder));
    }
    for (const auto& [variable, order] : orders) {
        Program::State state;
        state.variable = source.op(variable).variable;
        state.name = source.op(variable).name;
        state.before = mapped({variable, 0});
        state.assigned = order.last() >= 0;
        state.after = state.assigned ? mapped({order.last(), 0}) : state.before;
        if (!state.assigned && counts_runs(source.op(variable))) {
            state.assigned = true;
            state.after = next_count(program.graph, source.op(variable), state.before);
        }
        program.states.push_back(std::move(state));
    }
    for (TensorRef target : request.targets) {
        internal_check(!is_op(source.op(target.op), "assign"), "an assignment is no target tensor");
        program.results.push_back(mapped(target));
    }
    if (!request.results.empty()) add_layouts(request, assumptions, program);
    return program;
}

}  // namespace topstitch
