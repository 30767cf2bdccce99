// The operations that the compiler itself knows (inputs, constants and state), and stop_gradient.
// Reads and assignments name their variable by the tensor of its `variable` operation.
#include "graph/apply.h"
#include "graph/dims.h"
#include "ops/families.h"

namespace topstitch::ops {

namespace {

TensorType type_of(const NDArray& array) {
    return {array.dtype(), Shape::of(array.shape())};
}

// No input, so there is nothing for a gradient to flow to.
Gradient no_inputs() {
    return GradientRule{[](GradientContext&) { return std::vector<Tensor>{}; }};
}

OpDef placeholder() {
    OpDef def;
    def.name = "placeholder";
    def.doc =
        "A tensor whose value is fed at run time. A dim of the shape may be unknown (?) or named; dims of one name "
        "must "
        "agree in a run. An unranked shape accepts any rank.";
    def.attributes = {{"shape", AttributeKind::shape, "the shape of what will be fed"},
                      {"dtype", AttributeKind::dtype, "the dtype of what will be fed", false, DType::float32, {}}};
    def.results = {"value"};
    def.infer = [](const OpView& v) { return std::vector{TensorType{v.dtype("dtype"), v.shape("shape")}}; };
    def.gradient = no_inputs();
    def.mpsgraph = {"placeholderWithShape:dataType:name:", "placeholderWithShape:name:"};
    return def;
}

OpDef constant() {
    OpDef def;
    def.name = "constant";
    def.doc = "A fixed array. Its contents count in the graph's structural hash.";
    def.attributes = {{"value", AttributeKind::array, "the elements"}};
    def.results = {"value"};
    def.infer = [](const OpView& v) { return std::vector{type_of(v.array("value"))}; };
    def.gradient = no_inputs();
    def.mpsgraph = {
        "constantWithData:shape:dataType:", "constantWithScalar:dataType:", "constantWithScalar:shape:dataType:"};
    def.onnx = "Constant";
    return def;
}

OpDef variable() {
    OpDef def;
    def.name = "variable";
    def.doc =
        "State that lasts from run to run, with a fixed dtype and shape. Used as a tensor it is the value from before "
        "the "
        "run; use read to see an assignment of the same run. With a step it counts the runs that use it: each adds the "
        "step, unless it assigns a value.";
    def.attributes = {{"value", AttributeKind::array, "the initial value"},
                      {"step", AttributeKind::array, "added by each run that uses the variable", false, {}, {}}};
    def.results = {"value"};
    def.infer = [](const OpView& v) {
        const TensorType type = type_of(v.array("value"));
        if (v.has("step") && type_of(v.array("step")) != type) {
            v.fail(concat("the value is ", type.str(), ", but its step is ", type_of(v.array("step")).str(),
                          "; they must be of one type"));
        }
        return std::vector{type};
    };
    def.gradient = no_inputs();
    def.mpsgraph = {"variableWithData:shape:dataType:name:", "variableFromTensorWithTensor:name:"};
    return def;
}

OpDef read() {
    OpDef def;
    def.name = "read";
    def.doc =
        "The value of a variable, after the assignments that come before this operation by control dependency. The "
        "gradient flows on to the variable.";
    def.args = {{"variable", "the variable to read"}};
    def.results = {"value"};
    def.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{g.grad()}; }};
    def.mpsgraph = {"readVariable:name:"};
    return def;
}

OpDef assign() {
    OpDef def;
    def.name = "assign";
    def.doc =
        "Gives a variable a new value, which it keeps after the run. The value has the variable's dtype and shape. "
        "Assignments to one variable commit in the order of their control dependencies.";
    def.args = {{"variable", "the variable to change"}, {"value", "its new value"}};
    def.infer = [](const OpView& v) {
        const TensorType& target = v.input(0);
        const TensorType& value = v.input(1);
        if (value.dtype != target.dtype) {
            v.fail_type(concat("the variable is ", target.str(), ", but the value is ", value.str(),
                               "; convert the value with cast"));
        }
        if (!shapes_agree(value.shape, target.shape)) {
            v.fail(concat("the variable is ", target.str(), ", but the value is ", value.str(),
                          "; a variable keeps its shape, so reshape or broadcast the value"));
        }
        return std::vector<TensorType>{};
    };
    def.gradient = NotDifferentiable{"it has no result, it only changes the variable"};
    def.mpsgraph = {"assignVariable:withValueOfTensor:name:"};
    return def;
}

OpDef stop_gradient() {
    OpDef def;
    def.name = "stop_gradient";
    def.doc = "The input unchanged; for differentiation it is a constant, so that no gradient flows through it.";
    def.args = {{"x", "any tensor"}};
    def.results = {"y"};
    def.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) { return c.operand(0, at); }};
    def.gradient = ConstantInGradients{};
    def.view = true;
    return def;
}

}  // namespace

std::vector<OpDef> builtin_ops() {
    std::vector<OpDef> defs = {placeholder(), constant(), variable(), read(), assign(), stop_gradient()};
    for (OpDef& def : defs) {
        def.family = "builtin";
        if (def.name != "stop_gradient") def.body = BuiltinBody{};
    }
    return defs;
}

}  // namespace topstitch::ops
