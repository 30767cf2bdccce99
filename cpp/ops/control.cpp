// Branches and loops: what their functions take and give. Users describe them through topstitch/control.h.
// The runtime performs them (stitch/plan.h); their gradients are in control_gradients.cpp.
#include "ops/control.h"

#include "graph/apply.h"
#include "graph/dims.h"
#include "ops/control_gradients.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

const TensorType index_type{DType::int32, Shape(std::vector<Dim>{})};

int count_of(const OpView& view, std::string_view attribute, int most) {
    const std::int64_t count = view.integer(attribute);
    if (count < 0 || count > most)
        view.fail(concat("'", attribute, "' is ", count, ", but it has ", view.num_inputs(), " inputs"));
    return static_cast<int>(count);
}

void require_parameters(const OpView& view, const Function& function, std::size_t count) {
    if (function.parameters.size() == count) return;
    view.fail(concat("its function has ", function.parameters.size(), " parameters, but its inputs make ", count));
}

std::string given(const std::vector<TensorType>& types) {
    std::string text;
    for (const TensorType& type : types) text += (text.empty() ? "" : ", ") + type.str();
    return "(" + text + ")";
}

Shape unify_shapes(const Shape& a, const Shape& b) {
    if (!a.has_rank()) return b;
    if (!b.has_rank()) return a;
    std::vector<Dim> dims;
    for (int axis = 0; axis < a.rank(); ++axis) dims.push_back(unify_dims(a[axis], b[axis]));
    return Shape(std::move(dims));
}

// A carried tensor keeps its type from iteration to iteration.
TensorType carried_type(const OpView& view, int k, const TensorType& before, const TensorType& after) {
    if (before.dtype != after.dtype || !shapes_agree(before.shape, after.shape)) {
        const std::string message = concat(
            "the carried tensor ", k, " is ", before.str(), " at first, but the body makes ", after.str(),
            " of it; it must keep its dtype and shape", before.dtype != after.dtype ? " (convert it with cast)" : "");
        if (before.dtype != after.dtype) view.fail_type(message);
        view.fail(message);
    }
    return {before.dtype, unify_shapes(before.shape, after.shape)};
}

Shape stacked_shape(const Dim& length, const Shape& shape) {
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims = {length};
    dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
    return Shape(std::move(dims));
}

void require_scalar_bool(const OpView& view, const TensorType& type, const char* what) {
    if (type.dtype != DType::boolean) view.fail_type(concat(what, " must be a bool, but it is ", type.str()));
    if (type.shape.has_rank() && type.shape.rank() != 0)
        view.fail(concat(what, " must be a scalar, but it is ", type.str(), "; reduce it with any or all"));
}

OpDef if_else_op() {
    OpDef def;
    def.name = "if_else";
    def.doc = "The results of one of two functions, by a predicate; only that one is computed.";
    def.args = {{"predicate", "scalar bool"}, {"captures", "what the functions use", true, true}};
    def.attributes = {{"then", AttributeKind::function, "computed where the predicate holds"},
                      {"otherwise", AttributeKind::function, "computed where it does not"}};
    def.infer = [](const OpView& view) {
        require_scalar_bool(view, view.input(0), "the predicate");
        const std::vector<TensorType> parameters = parameter_types(view);
        const Function& then = view.function("then");
        const Function& otherwise = view.function("otherwise");
        require_parameters(view, then, parameters.size());
        require_parameters(view, otherwise, parameters.size());
        const std::vector<TensorType> a = function_types(then, parameters);
        const std::vector<TensorType> b = function_types(otherwise, parameters);
        bool agree = a.size() == b.size();
        for (std::size_t k = 0; agree && k < a.size(); ++k)
            agree = a[k].dtype == b[k].dtype && shapes_agree(a[k].shape, b[k].shape);
        if (!agree) {
            view.fail(concat("one branch gives ", given(a), " and the other ", given(b),
                             "; both must give equally many tensors, of the same dtypes and shapes"));
        }
        std::vector<TensorType> types;
        for (std::size_t k = 0; k < a.size(); ++k) types.push_back({a[k].dtype, unify_shapes(a[k].shape, b[k].shape)});
        return types;
    };
    def.gradient = GradientRule{if_else_gradient};
    def.mpsgraph = {"ifWithPredicateTensor:thenBlock:elseBlock:"};
    def.onnx = "If";
    return def;
}

OpDef while_loop_op() {
    OpDef def;
    def.name = "while_loop";
    def.doc = "Repeats a function on tensors that are carried round, while a condition of them holds.";
    def.args = {{"inputs", "the carried tensors at first, and what the functions use", true}};
    def.attributes = {{"condition", AttributeKind::function, "gives a scalar bool"},
                      {"body", AttributeKind::function, "gives the new carried tensors"},
                      {"carried", AttributeKind::integer, "how many tensors are carried"}};
    def.infer = [](const OpView& view) {
        const int carried = count_of(view, "carried", view.num_inputs());
        const std::vector<TensorType> parameters = parameter_types(view);
        const Function& condition = view.function("condition");
        const Function& body = view.function("body");
        require_parameters(view, condition, parameters.size());
        require_parameters(view, body, parameters.size());
        const std::vector<TensorType> decided = function_types(condition, parameters);
        if (decided.size() != 1) view.fail(concat("the condition gives ", given(decided), " instead of a scalar bool"));
        require_scalar_bool(view, decided[0], "the condition");
        const std::vector<TensorType> results = function_types(body, parameters);
        if (results.size() != static_cast<std::size_t>(carried)) {
            view.fail(concat("the body gives ", results.size(), " tensors, but ", carried,
                             " are carried; return one for each, in the same order"));
        }
        std::vector<TensorType> types;
        for (int k = 0; k < carried; ++k)
            types.push_back(carried_type(view, k, view.input(k), results[static_cast<std::size_t>(k)]));
        return types;
    };
    def.gradient = NotDifferentiable{
        "the number of its iterations is not known beforehand; a loop of known length, like scan or a for_loop with a "
        "number, is differentiable"};
    def.mpsgraph = {"whileWithInitialInputs:before:after:"};
    def.onnx = "Loop";
    return def;
}

OpDef scan_op() {
    OpDef def;
    def.name = "scan";
    def.doc = "A loop of known length with tensors carried round, over the parts of sequences.";
    def.args = {{"inputs", "the carried tensors at first, the sequences, and what the function uses", true, true}};
    def.attributes = {{"body", AttributeKind::function, "one iteration"},
                      {"carried", AttributeKind::integer, "how many tensors are carried"},
                      {"sequences", AttributeKind::integer, "how many sequences there are"},
                      {"length",
                       AttributeKind::shape,
                       "one dim, the number of iterations; none: that of the sequences",
                       false,
                       {},
                       {}},
                      {"reverse", AttributeKind::boolean, "from the last index to the first", false, false, {}}};
    def.infer = [](const OpView& view) {
        const ScanLayout layout(view);
        for (int k = 0; k < layout.sequences; ++k) {
            const TensorType& type = view.input(layout.carried + k);
            if (!type.shape.has_rank()) continue;
            if (type.shape.rank() == 0)
                view.fail(concat("the sequence ", k, " is ", type.str(), ", which has no axis to go along"));
            if (!dims_agree(type.shape[0], layout.length)) {
                view.fail(concat("the sequence ", k, " is ", type.str(), ", but the loop has ", layout.length.str(),
                                 " iterations; the first axes of all sequences must agree"));
            }
        }
        const std::vector<TensorType> results = function_types(view.function("body"), parameter_types(view));
        std::vector<TensorType> types;
        for (int k = 0; k < layout.carried; ++k)
            types.push_back(carried_type(view, k, view.input(k), results[static_cast<std::size_t>(k)]));
        for (int k = 0; k < layout.stacked; ++k) {
            const TensorType& part = results[static_cast<std::size_t>(layout.carried + k)];
            types.push_back({part.dtype, stacked_shape(layout.length, part.shape)});
        }
        for (int k = 0; k < layout.carried; ++k) {
            const TensorType carried = types[static_cast<std::size_t>(k)];
            types.push_back({carried.dtype, stacked_shape(layout.length, carried.shape)});
        }
        for (const TensorType& type : types) {
            if (type.shape.has_rank() && type.shape.rank() > max_rank)
                view.fail(concat("stacked, a result has ", type.shape.rank(), " axes; there may be ", max_rank));
        }
        return types;
    };
    def.gradient = GradientRule{scan_gradient};
    def.mpsgraph = {"forLoopWithLowerBound", "forLoopWithNumberOfIterations"};
    def.onnx = "Scan";
    return def;
}

}  // namespace

ScanLayout::ScanLayout(const OpView& view) {
    carried = count_of(view, "carried", view.num_inputs());
    sequences = count_of(view, "sequences", view.num_inputs() - carried);
    captures = view.num_inputs() - carried - sequences;
    const Function& body = view.function("body");
    require_parameters(view, body, 1 + static_cast<std::size_t>(view.num_inputs()));
    stacked = static_cast<int>(body.results.size()) - carried;
    if (stacked < 0) {
        view.fail(concat("the body gives ", body.results.size(), " tensors, but ", carried,
                         " are carried; return one for each, in the same order"));
    }
    length = Dim::unknown();
    if (view.has("length")) {
        const Shape& shape = view.shape("length");
        if (!shape.has_rank() || shape.rank() != 1) view.fail("'length' must be one dim");
        length = shape[0];
    }
    for (int k = 0; k < sequences; ++k) {
        const Shape& shape = view.in_shape(carried + k);
        if (shape.has_rank() && shape.rank() > 0 && dims_agree(length, shape[0])) length = unify_dims(length, shape[0]);
    }
    if (sequences == 0 && length.is_unknown())
        view.fail("without sequences the number of iterations must be given (length=...)");
}

Shape shape_of_part(const Shape& sequence) {
    if (!sequence.has_rank() || sequence.rank() == 0) return sequence;  // the latter is refused by the type rule
    return Shape(std::vector<Dim>(sequence.dims().begin() + 1, sequence.dims().end()));
}

std::vector<TensorType> parameter_types(const OpView& view) {
    std::vector<TensorType> types;
    if (view.def().name == "if_else") {
        for (int k = 1; k < view.num_inputs(); ++k) types.push_back(view.input(k));
        return types;
    }
    const bool is_scan = view.def().name == "scan";
    if (is_scan) types.push_back(index_type);
    for (int k = 0; k < view.num_inputs(); ++k) types.push_back(view.input(k));
    if (!is_scan) return types;
    const ScanLayout layout(view);
    for (int k = 0; k < layout.sequences; ++k) {
        Shape& shape = types[static_cast<std::size_t>(layout.parameter_of_sequence(k))].shape;
        shape = shape_of_part(shape);
    }
    return types;
}

Captures captures_of(const OpView& view) {
    if (view.def().name == "if_else") return {0, 1};
    if (view.def().name == "while_loop") {
        const auto carried = static_cast<std::size_t>(view.integer("carried"));
        return {carried, carried};
    }
    const auto first = static_cast<std::size_t>(ScanLayout(view).parameter_of_capture(0));
    return {first, first - 1};
}

std::vector<OpDef> control_ops() {
    std::vector<OpDef> defs = {if_else_op(), while_loop_op(), scan_op()};
    for (OpDef& def : defs) {
        def.family = "control";
        def.body = ControlBody{};
        def.internal = true;  // built by topstitch/control.h
        def.results = {"results"};
        def.many_results = true;
    }
    return defs;
}

}  // namespace topstitch::ops
