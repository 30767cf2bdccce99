// Algebra that is exact for every value (NaN, infinities and signed zeros included), and removal of
// operations that do nothing.
#include <cmath>

#include "ops/element_lowering.h"
#include "passes/passes.h"

namespace topstitch {

namespace {

// One operation of the new graph, about to be appended.
struct Candidate {
    const GraphData& graph;
    const OpNode& node;

    const std::string& op() const { return node.def->name; }
    TensorRef input(int k) const { return node.inputs[static_cast<std::size_t>(k)]; }
    const TensorType& in_type(int k) const { return graph.type(input(k)); }
    const TensorType& out_type() const { return node.outputs[0]; }
    bool same_type(int k) const { return in_type(k) == out_type(); }
    bool is_splat(int k, double value) const {
        const std::optional<double> splat = splat_value(graph, input(k));
        return splat && *splat == value && std::signbit(*splat) == std::signbit(value);
    }
};

// A view whose every element is that of its input at the same place: the body loads it from there.
bool moves_nothing(const Candidate& c) {
    const auto* body = std::get_if<ElementBody>(&c.node.def->body);
    if (body == nullptr || !c.node.def->view || c.node.inputs.size() != 1 || !c.same_type(0)) return false;
    const NodeView node(c.graph, c.node);
    const auto& [dtype, shape] = c.out_type();
    loopir::Builder builder;
    const int buffer = builder.add_buffer(buffer_param("x", dtype, shape, loopir::BufferParam::Role::input));
    Indices at;
    for (const Dim& extent : shape.dims()) at.push_back(extent == Dim(1) ? Index(0) : builder.begin_loop("i", extent));
    const auto load = [&](int, const Indices& from, loopir::ValueId guard) {
        return load_element(builder, buffer, dtype, row_major_offset(shape, from), guard);
    };
    FunctionContext context(builder, node.view, load);
    // Equal loads are one value.
    return body->element(context, at).re == load(0, at, loopir::no_value).re;
}

// The input that the operation passes on unchanged, or -1.
int passed_through(const Candidate& c) {
    const std::string& op = c.op();
    if (c.node.inputs.empty() || c.node.outputs.size() != 1) return -1;
    if (moves_nothing(c)) return 0;
    if (op == "cast" && c.same_type(0)) return 0;
    const bool integer = is_integer(c.out_type().dtype);
    if (op == "multiply") {
        if (c.same_type(0) && c.is_splat(1, 1)) return 0;
        if (c.same_type(1) && c.is_splat(0, 1)) return 1;
    }
    if (op == "divide" && c.same_type(0) && c.is_splat(1, 1)) return 0;
    // x - (+0) is x for every x; x + (+0) turns -0 into +0, while x + (-0) is exact.
    if (op == "subtract" && c.same_type(0) && c.is_splat(1, 0.0)) return 0;
    if (op == "add") {
        const double zero = integer ? 0.0 : -0.0;
        if (c.same_type(0) && c.is_splat(1, zero)) return 0;
        if (c.same_type(1) && c.is_splat(0, zero)) return 1;
    }
    if (op == "power" && c.same_type(0) && c.is_splat(1, 1)) return 0;
    return -1;
}

// negative(negative(x)) and the like: an involution applied twice.
bool undoes(const Candidate& c, TensorRef& original) {
    const std::string& op = c.op();
    if (op != "negative" && op != "logical_not" && op != "bitwise_not" && op != "conj") return false;
    const OpNode& inner = c.graph.op(c.input(0).op);
    if (inner.def != c.node.def) return false;
    original = inner.inputs[0];
    return true;
}

}  // namespace

Program simplify(const Program& program) {
    Rebuild rebuild(program);
    const OpDef* square = find_op("square");
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        OpNode node = rebuild.mapped_node(id);
        const Candidate candidate{*rebuild.graph(), node};
        TensorRef original;
        if (const int passed = passed_through(candidate); passed >= 0) {
            rebuild.map(id, {candidate.input(passed)});
        } else if (undoes(candidate, original)) {
            rebuild.map(id, {original});
        } else {
            if (candidate.op() == "power" && candidate.same_type(0) && candidate.is_splat(1, 2)) {
                // pow(x, 2) is x * x, correctly rounded in both forms.
                node.def = square;
                node.inputs.resize(1);
                node.attributes.clear();
            }
            rebuild.add(id, std::move(node));
        }
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
