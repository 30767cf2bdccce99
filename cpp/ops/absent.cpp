// The placeholder for optional inputs that are left out.
// See absent.h; the builders of C++ and Python put it in.
#include "ops/absent.h"

#include "ops/families.h"

namespace topstitch::ops {

bool is_given(const OpView& view, int k) {
    if (k >= view.num_inputs()) return false;
    const TensorType& type = view.input(k);
    return !(type.dtype == DType::boolean && type.shape.has_rank() && type.shape.rank() == 1 &&
             type.shape[0] == Dim(0));
}

Tensor given_input(const CompositeContext& context, int k) {
    return is_given(context.op, k) ? context.input(k) : Tensor();
}

std::vector<OpDef> absent_ops() {
    OpDef def;
    def.name = "absent";
    def.family = "builtin";
    def.doc = "Stands for an optional input that is left out before another one that is given.";
    def.results = {"value"};
    def.infer = [](const OpView&) { return std::vector{TensorType{DType::boolean, Shape({Dim(0)})}}; };
    def.body =
        ElementBody{[](ElementContext& c, const Indices&) { return Value{c.b.constant_int(0, DType::boolean)}; }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>{}; }};
    def.internal = true;
    return {def};
}

}  // namespace topstitch::ops
