// The operations scatter, scatter_nd and scatter_along_axis, and their gradients.
// Updates meet an element in a fixed order; one whose index is out of range goes nowhere.
#include "ops/complex_math.h"
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/gather.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using namespace expr;
using loopir::ScalarOp;

AttrDef mode_attr() {
    return choice_attr("mode", "set", {"set", "add", "subtract", "multiply", "divide", "min", "max"},
                       "what becomes of an element that meets an update: it is replaced, or combined with it");
}

void check_mode(const OpView& v) {
    const std::string& mode = v.string("mode");
    const DType dtype = v.input(0).dtype;
    const bool orders = mode == "min" || mode == "max";
    if (dtype == DType::boolean && mode != "set" && !orders) {
        v.fail_type(concat("mode \"", mode, "\" needs numbers, but ", input_name(v, 0),
                           " is bool; use \"max\" for or, \"min\" for and, \"set\", or cast"));
    }
    if (is_complex(dtype) && orders) {
        v.fail_type(concat("mode \"", mode, "\" needs an order, which complex64 has not; use a real dtype"));
    }
}

Value combined(ElementContext& c, const Value& before, const Value& update) {
    const std::string& mode = c.op.string("mode");
    const auto both_parts = [&](ScalarOp op) {
        Value value{c.b.op(op, before.re, update.re)};
        if (before.is_complex()) value.im = c.b.op(op, before.im, update.im);
        return value;
    };
    if (mode == "set") return update;
    if (mode == "add") return both_parts(ScalarOp::add);
    if (mode == "subtract") return both_parts(ScalarOp::sub);
    if (mode == "multiply") return product(c, before, update);
    if (mode == "divide") {
        return before.is_complex() ? complex_div(c.b, before, update) : Value{c.b.div(before.re, update.re)};
    }
    const bool flags = c.op.output().dtype == DType::boolean;
    if (mode == "max") return both_parts(flags ? ScalarOp::bit_or : ScalarOp::max);
    return both_parts(flags ? ScalarOp::bit_and : ScalarOp::min);
}

std::optional<loopir::Combiner> joined(const OpView& v) {
    using loopir::Combiner;
    const std::string& mode = v.string("mode");
    const DType dtype = v.output().dtype;
    if (mode == "set") return Combiner::argmax;
    // Those of floats depend on their order.
    if ((mode == "add" || mode == "subtract") && is_integer(dtype)) return Combiner::sum;
    if (mode == "multiply" && is_integer(dtype)) return Combiner::product;
    const bool flags = dtype == DType::boolean;
    if (mode == "min") return flags ? Combiner::logical_and : Combiner::min;
    if (mode == "max") return flags ? Combiner::logical_or : Combiner::max;
    return std::nullopt;
}

// The updates broadcast to the shape of what a gather would give.
void check_updates(const OpView& v, const Shape& picked) {
    const Shape& updates = v.in_shape(2);
    if (!picked.has_rank() || !updates.has_rank()) return;
    bool fits = updates.rank() <= picked.rank();
    for (int k = 1; fits && k <= updates.rank(); ++k) {
        const Dim& wanted = picked[picked.rank() - k];
        const Dim& given = updates[updates.rank() - k];
        fits = given == Dim(1) || dims_agree(wanted, given);
    }
    if (fits) return;
    v.fail(concat(input_name(v, 2), " has shape ", updates.str(), ", but that of ", input_name(v, 0), ", ",
                  v.in_shape(0).str(), ", and of ", input_name(v, 1), ", ", v.in_shape(1).str(),
                  ", ask for updates of shape ", picked.str(), ", or what broadcasts to it"));
}

// Along an axis: the tensor itself does not broadcast, since each of its elements is there once.
void check_whole(const OpView& v, const Shape& picked) {
    const Shape& data = v.in_shape(0);
    if (!data.has_rank() || !picked.has_rank()) return;
    const int axis = normalized_axis(v, "axis", data.rank());
    for (int k = 0; k < data.rank(); ++k) {
        if (k == axis || dims_agree(data[k], picked[k])) continue;
        v.fail(concat(input_name(v, 0), " has shape ", data.str(), ", but ", input_name(v, 1), " has ",
                      v.in_shape(1).str(), "; on every axis but axis ", axis, " the indices have the same dim, or 1"));
    }
}

// --- Gradients.

class ScatterGradient {
public:
    ScatterGradient(const Picking& picking, GradientContext& g) : picking_(picking), g_(g) {
        attributes_ = shared_attributes(g.op, *find_op("gather" + picking.suffix));
    }

    std::vector<Tensor> run() {
        const std::string& mode = g_.op.string("mode");
        if (mode == "set") return set();
        if (mode == "add" || mode == "subtract") {
            const Tensor back = gathered(g_.grad());
            return {g_.grad(), Tensor(), to_updates(mode == "add" ? back : -back)};
        }
        if (mode == "multiply") return multiply();
        if (mode == "divide") {
            const Tensor back = gathered(g_.grad() * conj_if_complex(g_.output()));
            return {scattered(g_.grad(), conj_if_complex(updates()), "divide"), Tensor(),
                    to_updates(-(back / conj_if_complex(updates())))};
        }
        return extreme();
    }

private:
    Tensor gathered(const Tensor& x) const { return apply("gather" + picking_.suffix, {x, g_.input(1)}, attributes_); }
    Tensor scattered(const Tensor& base, const Tensor& updates, const char* mode) const {
        NamedAttributes attributes = attributes_;
        attributes.emplace_back("mode", std::string(mode));
        return apply("scatter" + picking_.suffix, {base, g_.input(1), updates}, attributes);
    }
    // The updates, all of them where they broadcast.
    Tensor updates() const { return broadcast_like(g_.input(2), gathered(g_.grad())); }
    Tensor to_updates(const Tensor& gradient) const { return g_.needs(2) ? sum_like(gradient, g_.input(2)) : Tensor(); }

    // Of the updates that meet in one element only the last is in the result.
    std::vector<Tensor> set() const {
        const Tensor to_base = scattered(g_.grad(), zeros_like(g_.input(2)), "set");
        if (!g_.needs(2)) return {to_base, Tensor(), Tensor()};
        const Tensor back = gathered(g_.grad());
        const Tensor flat = reshape(back, Shape({Dim::unknown()}));
        const Tensor number =
            reshape_like(apply("coordinates", {flat}, {{"axis", std::int64_t{0}}, {"dtype", DType::int64}}), back);
        const Tensor last = scattered(cast(zeros_like(g_.grad()), DType::int64), number, "set");
        return {to_base, Tensor(), to_updates(where(equal(gathered(last), number), back, zeros_like(back)))};
    }

    // d product / d factor is the product of the others: product / factor, or with one factor of 0 that of the rest.
    std::vector<Tensor> multiply() const {
        const Tensor factors = updates();
        const Tensor to_base = scattered(g_.grad(), conj_if_complex(factors), "multiply");
        if (!g_.needs(2)) return {to_base, Tensor(), Tensor()};
        const Tensor is_zero = equal(factors, zeros_like(factors));
        const Tensor ones = ones_like(factors);
        const Tensor rest = scattered(g_.input(0), where(is_zero, ones, factors), "multiply");
        const Tensor zeros = scattered(zeros_like(g_.input(0)), where(is_zero, ones, zeros_like(factors)), "add");
        const Tensor gradient_of_rest = gathered(g_.grad() * conj_if_complex(rest));
        const Tensor other_zeros = gathered(zeros) - where(is_zero, ones, zeros_like(factors));
        const Tensor share = gradient_of_rest / conj_if_complex(where(is_zero, ones, factors));
        return {to_base, Tensor(),
                to_updates(where(equal(other_zeros, zeros_like(other_zeros)), share, zeros_like(share)))};
    }

    // All that are equal to the extreme share its gradient evenly.
    std::vector<Tensor> extreme() const {
        const DType dtype = g_.grad().dtype();
        const Tensor all = updates();
        const Tensor base_hits = cast(equal(g_.input(0), g_.output()), dtype);
        const Tensor update_hits = cast(equal(all, gathered(g_.output())), dtype);
        const Tensor share = g_.grad() / maximum(scattered(base_hits, update_hits, "add"), ones_like(g_.grad()));
        return {where(equal(g_.input(0), g_.output()), share, zeros_like(share)), Tensor(),
                to_updates(update_hits * gathered(share))};
    }

    const Picking& picking_;
    GradientContext& g_;
    NamedAttributes attributes_;
};

// --- The operations.

using Check = std::function<void(const OpView&, const Shape& picked)>;

OpDef scatter_op(const Picking& picking, const Check& check, std::string doc) {
    OpDef def;
    def.name = "scatter" + picking.suffix;
    def.family = "indexing";
    def.doc =
        std::move(doc) +
        " With mode \"set\" (the default) the last of several updates to one element stays, as in NumPy's "
        "assignment; with \"add\", \"subtract\", \"multiply\", \"divide\" (of integers: towards zero), \"min\" and "
        "\"max\" (NaN wins) all take part, one after the other. Updates broadcast. A negative index counts from "
        "the end; what is still out of range is skipped. The result does not depend on timing. A variable that "
        "is assigned the scatter into it is updated in place. Gradients of \"min\" and \"max\" are shared "
        "evenly among equals.";
    def.args = {{"data", "any tensor; what the result is where no update goes"},
                {"indices", "int32 or int64"},
                {"updates", "of the dtype of data"}};
    def.attributes = picking.attributes;
    def.attributes.push_back(mode_attr());
    def.results = {"y"};
    def.infer = [picking, check](const OpView& v) {
        if (v.input(2).dtype != v.input(0).dtype) {
            v.fail_type(concat(input_name(v, 2), " has dtype ", name_of(v.input(2).dtype), ", but ", input_name(v, 0),
                               " has ", name_of(v.input(0).dtype), "; use cast to make them equal"));
        }
        check_mode(v);
        const Shape picked = picking.shape(v);
        if (check) check(v, picked);
        check_updates(v, picked);
        return same_type(v);
    };
    ScatterBody body;
    body.domain = [picking](const OpView& v) { return picking.shape(v).dims(); };
    body.base = [](ElementContext& c, const Indices& at) { return c.operand(0, at); };
    body.place = picking.place;
    body.update = [picking](ElementContext& c, const Indices& at) {
        return c.operand(2, broadcast_index(c.op.in_shape(2), picking.shape(c.op), at));
    };
    body.combine = combined;
    body.joined = joined;
    def.body = std::move(body);
    def.gradient = GradientRule{[picking](GradientContext& g) { return ScatterGradient(picking, g).run(); }};
    return def;
}

OpDef scatter() {
    OpDef def = scatter_op(
        pick_slices(), nullptr,
        "The tensor data with updates to the slices along an axis that the indices name: result[..., indices[i, j], "
        "...] "
        "is combined with updates[..., i, j, ...], whose shape is that of gather(data, indices, axis, batch_dims).");
    def.mpsgraph = {"scatterWithUpdatesTensor", "scatterWithDataTensor"};
    return def;
}

OpDef scatter_nd() {
    OpDef def = scatter_op(
        pick_nd(), nullptr,
        "The tensor data with updates to elements or slices, each named by a vector of positions along the last axis "
        "of "
        "the indices: result[indices[i, 0], indices[i, 1], ..., ...] is combined with updates[i, ...], whose shape is "
        "that of gather_nd(data, indices, batch_dims).");
    def.mpsgraph = {"scatterNDWithUpdatesTensor", "scatterNDWithDataTensor"};
    def.onnx = "ScatterND";
    return def;
}

OpDef scatter_along_axis() {
    OpDef def = scatter_op(
        pick_along_axis(), check_whole,
        "The tensor data with an update for each index: result[i, indices[i, j, k], k] is combined with updates[i, j, "
        "k], here for axis 1: NumPy's put_along_axis. On the other axes data and indices agree.");
    def.mpsgraph = {"scatterAlongAxis"};
    def.onnx = "ScatterElements";
    return def;
}

}  // namespace

std::vector<OpDef> scatter_ops() {
    return {scatter(), scatter_nd(), scatter_along_axis()};
}

}  // namespace topstitch::ops
