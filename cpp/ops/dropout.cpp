// Dropout: a random mask that is made anew in each run, and made again (or kept, as the stitcher decides) for the
// gradient.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/random_rules.h"

namespace topstitch::ops {

using namespace expr;

namespace {

bool drops(const OpView& view) {
    return view.flag("training") && view.real("rate") > 0.0;
}

OpDef dropout_op() {
    OpDef def;
    def.name = "dropout";
    def.family = "random";
    def.doc =
        "In training each element is 0 with probability rate, else x / (1 - rate), so that the expected value is x (N. "
        "Srivastava et al., JMLR 15, 2014); in inference (training=false), and for a rate of 0, x itself. Without a "
        "state the mask is another one in each run, determined by the graph's seed. What is dropped does not matter, "
        "not even NaN, and its gradient is 0. A rate of 1 gives zeros. 16-bit floats are scaled in float32.";
    def.args = {{"x", "floating-point tensor"},
                {"state", "random state, uint64[3]; the graph's own, which differs from run to run, when left out",
                 false, true}};
    def.attributes = {required_attr("rate", AttributeKind::real, "the probability of dropping, 0 to 1"),
                      flag_attr("training", true, "drop; false: pass x on")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_floating(v, 0);
        if (v.num_inputs() > 1) require_state(v, 1);
        const double rate = v.real("rate");
        if (!(rate >= 0.0 && rate <= 1.0)) {
            v.fail(concat("rate is ", rate, ", but a probability is at least 0 and at most 1"));
        }
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor& x = c.input(0);
        if (!drops(c.op)) return std::vector{x};
        const double keep = 1.0 - c.op.real("rate");
        if (keep == 0.0) return std::vector{zeros_like(x)};
        const Tensor kept = apply("draw_bernoulli", {c.input(1)}, {{"shape", c.op.in_shape(0)}, {"p", keep}});
        const Tensor wide = widened(x);
        return std::vector{narrowed(where(kept, wide * (1.0 / keep), constant_like(0.0, wide)), x.dtype())};
    }};
    // Linear in x: the gradient is dropped and scaled in the same places.
    def.gradient = GradientRule{[](GradientContext& g) {
        std::vector<Tensor> inputs = g.inputs();
        inputs[0] = g.grad();
        std::vector<Tensor> gradients(inputs.size());
        gradients[0] = apply("dropout", inputs, {{"rate", g.op.real("rate")}, {"training", g.op.flag("training")}});
        return gradients;
    }};
    def.draws = drops;
    def.mpsgraph = {"dropoutTensor:rate:"};
    def.onnx = "Dropout";
    return def;
}

}  // namespace

std::vector<OpDef> dropout_ops() {
    return {dropout_op()};
}

}  // namespace topstitch::ops
