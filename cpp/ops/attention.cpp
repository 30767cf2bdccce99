// Scaled dot product attention: the operations for users, and those for which the stitcher has kernels of its own.
// What is written here in other operations materialises the scores; it is the reference, and not what users get.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/dims.h"
#include "ops/attention_shapes.h"
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

using namespace expr;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

NamedAttributes attention_attributes(const OpView& view) {
    return {{"scale", view.attribute("scale")}, {"causal", view.attribute("causal")}};
}

// --- Types.

void check_mask(const OpView& view, int k, const AttentionShapes& shapes) {
    if (view.num_inputs() <= k) return;
    const DType dtype = view.input(k).dtype;
    if (dtype != DType::boolean && dtype != view.input(0).dtype) {
        view.fail_type(concat("the mask has dtype ", name_of(dtype), ", but bool (true where a query may attend) or ",
                              name_of(view.input(0).dtype), " (added to the scores) is needed; use cast"));
    }
    const Shape& mask = view.in_shape(k);
    if (!shapes.ranked || !mask.has_rank()) return;
    const Shape scores = shapes.scores();
    bool fits = mask.rank() <= scores.rank();
    for (int axis = 1; fits && axis <= mask.rank(); ++axis) {
        const Dim& wanted = scores[scores.rank() - axis];
        Dim together;
        fits = broadcast_dims(mask[mask.rank() - axis], wanted, together) && dims_agree(together, wanted);
    }
    if (!fits) {
        view.fail(concat("the mask has shape ", mask.str(), ", which does not broadcast to the scores' ", scores.str(),
                         ", [batch..., heads, tokens of the query, tokens of the key]"));
    }
}

AttentionShapes check_operands(const OpView& view, int mask) {
    require_floating(view, 0);
    require_same_dtype(view, 0, 2);
    AttentionShapes shapes = attention_shapes(view);
    check_mask(view, mask, shapes);
    return shapes;
}

TensorType output_type(const OpView& view, const AttentionShapes& shapes) {
    const DType dtype = view.input(0).dtype;
    if (!shapes.ranked) return {dtype, Shape::unranked()};
    return {dtype, shapes.with_heads(shapes.heads, {shapes.tokens, shapes.value_features})};
}

OpDef attention_frame(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.family = "attention";
    def.doc = std::move(doc);
    def.args = {{"query", "floating-point, [batch..., heads, tokens, features]"},
                {"key", "of the same dtype, [batch..., kv_heads, kv_tokens, features]"},
                {"value", "of the same dtype, [batch..., kv_heads, kv_tokens, value_features]"}};
    def.attributes = {optional_attr("scale", AttributeKind::real, Attribute(),
                                    "what products of query and key are multiplied by; none means 1 / sqrt(features)"),
                      flag_attr("causal", false, "whether query token i attends to the key tokens up to i only")};
    return def;
}

ArgDef mask_arg() {
    ArgDef mask{"mask",
                "bool (true where a query may attend) or of the query's dtype (added to the scores); broadcasts to "
                "[batch..., heads, tokens, kv_tokens]"};
    mask.optional = true;
    return mask;
}

// --- The reference.

struct Reference {
    const OpView& op;
    Tensor query, key, value;  // in the compute type, the heads of key and value repeated
    Tensor mask;               // empty: there is none
    Dim group = 1;

    Reference(const OpView& view, const std::vector<Tensor>& inputs, std::size_t mask_position) : op(view) {
        const AttentionShapes shapes = attention_shapes(view);
        group = shapes.ranked ? shapes.group : Dim::unknown();
        if (group.is_unknown()) {
            view.fail(
                "the numbers of heads have to be known here, for the derivative of a derivative or by the mask; give "
                "the placeholders numbers for their axis of heads");
        }
        shares_one_head = dim_is_one(shapes.kv_heads);
        query = widened(inputs[0]);
        key = repeated(widened(inputs[1]));
        value = repeated(widened(inputs[2]));
        if (inputs.size() > mask_position) mask = inputs[mask_position];
    }

    Tensor scale() const {
        if (op.has("scale")) return constant_like(op.real("scale"), query);
        const Dim& features = op.in_shape(0)[op.in_shape(0).rank() - 1];
        if (features.is_known()) return constant_like(1 / std::sqrt(static_cast<double>(features.value())), query);
        return rsqrt(apply("size", {query}, {{"axes", std::vector<std::int64_t>{-1}}, {"dtype", query.dtype()}}));
    }

    Tensor scores() const {
        // A query without features has scores of 0, whatever the scale.
        Tensor s = matmul(query * scale(), swapped(key));
        if (mask) {
            s = mask.dtype() == DType::boolean ? where(mask, s, constant_like(-infinity, s)) : s + widened(mask);
        }
        if (op.flag("causal")) {
            const auto position = [&](std::int64_t axis) { return apply("coordinates", {s}, {{"axis", axis}}); };
            s = where(greater(position(-1), position(-2)), constant_like(-infinity, s), s);
        }
        return s;
    }

    // The weights from the logarithm of their sum; 0 in rows that attend to nothing.
    Tensor probabilities(const Tensor& logsumexp) const {
        const Tensor bounded =
            where(equal(logsumexp, constant_like(-infinity, logsumexp)), constant_like(infinity, logsumexp), logsumexp);
        return exp(scores() - expand_dims(bounded, {-1}));
    }

    // From a gradient by repeated heads to one by the heads that there are.
    Tensor joined(const Tensor& x) const {
        if (group == Dim(1)) return x;
        if (shares_one_head) return sum(x, {-3}, true);
        Tensor total;
        for (std::int64_t k = 0; k < group.value(); ++k) {
            const Tensor part = apply("slice", {x},
                                      {{"starts", std::vector<std::int64_t>{k}},
                                       {"stops", std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max()}},
                                       {"steps", std::vector<std::int64_t>{group.value()}},
                                       {"axes", std::vector<std::int64_t>{-3}}});
            total = total ? total + part : part;
        }
        return total;
    }

    static Tensor swapped(const Tensor& x) {
        return apply("swap_axes", {x}, {{"axis1", std::int64_t{-1}}, {"axis2", std::int64_t{-2}}});
    }

private:
    bool shares_one_head = false;

    // One head broadcasts by itself.
    Tensor repeated(const Tensor& x) const {
        if (group == Dim(1) || shares_one_head) return x;
        if (!group.is_known()) op.fail("the number of heads that share one of the key must be known; give numbers");
        const std::vector<Tensor> copies(static_cast<std::size_t>(group.value()), x);
        return apply("interleave", copies, {{"axis", std::int64_t{-3}}});
    }
};

std::vector<Tensor> expand_attention(CompositeContext& c) {
    const Reference reference(c.op, c.inputs(), 3);
    const DType dtype = c.input(0).dtype();
    const Tensor s = reference.scores();
    const Tensor nothing = constant_like(-infinity, s);
    if (s.shape().has_rank() && s.shape()[s.shape().rank() - 1] == Dim(0)) {
        // No keys: sums of nothing.
        return {narrowed(matmul(s, reference.value), dtype), sum(s, {-1}, false) + nothing};
    }
    const Tensor largest = max(s, {-1}, true);
    const Tensor shift = where(equal(largest, nothing), constant_like(0, s), largest);
    const Tensor weights = exp(s - shift);
    const Tensor total = sum(weights, {-1}, true);
    const Tensor divisor = where(equal(total, constant_like(0, total)), constant_like(1, total), total);
    return {narrowed(matmul(weights, reference.value) / divisor, dtype),
            apply("squeeze", {shift + log(total)}, {{"axes", std::vector<std::int64_t>{-1}}})};
}

// The inputs of the gradients' operations.
enum GradientInput : std::size_t { in_logsumexp = 3, in_delta, in_gradient, in_mask };

Tensor score_gradient(const Reference& reference, const Tensor& probabilities, const Tensor& gradient,
                      const Tensor& delta) {
    const Tensor by_weights = matmul(widened(gradient), Reference::swapped(reference.value));
    return probabilities * (by_weights - expand_dims(delta, {-1}));
}

std::vector<Tensor> expand_query_gradient(CompositeContext& c) {
    const Reference reference(c.op, c.inputs(), in_mask);
    const Tensor weights = reference.probabilities(c.input(in_logsumexp));
    const Tensor by_scores = score_gradient(reference, weights, c.input(in_gradient), c.input(in_delta));
    return {narrowed(matmul(by_scores, reference.key) * reference.scale(), c.input(0).dtype())};
}

std::vector<Tensor> expand_key_value_gradient(CompositeContext& c) {
    const Reference reference(c.op, c.inputs(), in_mask);
    const DType dtype = c.input(0).dtype();
    const Tensor weights = reference.probabilities(c.input(in_logsumexp));
    const Tensor by_scores = score_gradient(reference, weights, c.input(in_gradient), c.input(in_delta));
    const Tensor by_key = matmul(Reference::swapped(by_scores), reference.query) * reference.scale();
    const Tensor by_value = matmul(Reference::swapped(weights), widened(c.input(in_gradient)));
    return {narrowed(reference.joined(by_key), dtype), narrowed(reference.joined(by_value), dtype)};
}

// --- Operations with kernels of their own.

std::vector<Tensor> attention_gradient(GradientContext& g) {
    const Tensor gradient = g.grad(0) ? g.grad(0) : zeros_like(g.output(0));
    // What all scores of a row have in common: the softmax takes it away, and a gradient by the logarithm adds to it.
    Tensor delta = sum(widened(gradient) * widened(g.output(0)), {-1}, false);
    if (g.grad(1)) delta = delta - g.grad(1);
    std::vector<Tensor> inputs{g.input(0), g.input(1), g.input(2), g.output(1), delta, gradient};
    const bool masked = g.inputs().size() > 3;
    if (masked) inputs.push_back(g.input(3));
    const NamedAttributes attributes = attention_attributes(g.op);
    std::vector<Tensor> results(g.inputs().size());
    if (g.needs(0)) results[0] = sum_like(apply("attention_query_gradient", inputs, attributes), g.input(0));
    if (g.needs(1) || g.needs(2)) {
        const std::vector<Tensor> both =
            apply(gradient.graph_data(), *find_op("attention_key_value_gradient"), inputs, attributes);
        results[1] = sum_like(both[0], g.input(1));
        results[2] = sum_like(both[1], g.input(2));
    }
    if (masked && g.needs(3)) {
        const Reference reference(g.op, g.inputs(), 3);
        const Tensor by_scores = score_gradient(reference, reference.probabilities(g.output(1)), gradient, delta);
        results[3] = sum_like(narrowed(by_scores, g.input(3).dtype()), g.input(3));
    }
    return results;
}

OpDef attention() {
    OpDef def = attention_frame("attention",
                                "Scaled dot product attention and, for its gradient, the logarithm of the sum of the "
                                "exponentials of each row of scores.");
    def.internal = true;
    def.args.push_back(mask_arg());
    def.results = {"output", "logsumexp"};
    def.infer = [](const OpView& v) {
        const AttentionShapes shapes = check_operands(v, 3);
        const DType type = compute_type(v.input(0).dtype);
        return std::vector{output_type(v, shapes), TensorType{type, shapes.ranked ? shapes.rows() : Shape::unranked()}};
    };
    def.body = CompositeBody{expand_attention, Library::attention};
    def.gradient = GradientRule{attention_gradient};
    return def;
}

OpDef gradient_frame(std::string name, std::string doc) {
    OpDef def = attention_frame(std::move(name), std::move(doc));
    def.internal = true;
    def.args.push_back({"logsumexp", "that of attention"});
    def.args.push_back({"delta", "for each row, the sum of gradient * output"});
    def.args.push_back({"gradient", "by the output"});
    def.args.push_back(mask_arg());
    def.gradient = FromExpansion{};
    return def;
}

AttentionShapes check_gradient_inputs(const OpView& view) {
    const AttentionShapes shapes = check_operands(view, in_mask);
    const TensorType output = output_type(view, shapes);
    const auto check = [&view](int k, DType dtype, const Shape& wanted) {
        const TensorType& given = view.input(k);
        if (given.dtype != dtype || !shapes_agree(given.shape, wanted)) {
            view.fail(concat(input_name(view, k), " is ", given.str(), ", but ", TensorType{dtype, wanted}.str(),
                             " is needed"));
        }
    };
    const Shape rows = shapes.ranked ? shapes.rows() : Shape::unranked();
    check(in_logsumexp, compute_type(output.dtype), rows);
    check(in_delta, compute_type(output.dtype), rows);
    check(in_gradient, output.dtype, output.shape);
    return shapes;
}

OpDef query_gradient() {
    OpDef def = gradient_frame("attention_query_gradient",
                               "The gradient of attention by the query, from the scores computed again.");
    def.results = {"query_gradient"};
    def.infer = [](const OpView& v) {
        const AttentionShapes s = check_gradient_inputs(v);
        return std::vector{
            TensorType{v.input(0).dtype, s.ranked ? s.with_heads(s.heads, {s.tokens, s.features}) : Shape::unranked()}};
    };
    def.body = CompositeBody{expand_query_gradient, Library::attention_query_gradient};
    return def;
}

OpDef key_value_gradient() {
    OpDef def = gradient_frame("attention_key_value_gradient",
                               "The gradients of attention by the key and the value, from the scores computed again.");
    def.results = {"key_gradient", "value_gradient"};
    def.infer = [](const OpView& v) {
        const AttentionShapes s = check_gradient_inputs(v);
        const auto type = [&](const Dim& features) {
            return TensorType{v.input(0).dtype,
                              s.ranked ? s.with_heads(s.kv_heads, {s.kv_tokens, features}) : Shape::unranked()};
        };
        return std::vector{type(s.features), type(s.value_features)};
    };
    def.body = CompositeBody{expand_key_value_gradient, Library::attention_key_value_gradient};
    return def;
}

// --- For users.

// Whether each head has one query token, which may as well be one of several in a head that the group shares.
bool is_group_of_tokens(const OpView& view, const AttentionShapes& shapes, const std::vector<Tensor>& inputs) {
    const auto decided = [](const Shape& shape) {
        return std::none_of(shape.dims().begin(), shape.dims().end(), [](const Dim& dim) { return dim.is_unknown(); });
    };
    if (!shapes.ranked || !(shapes.tokens == Dim(1)) || view.flag("causal")) return false;
    if (shapes.group == Dim(1) || shapes.group.is_unknown()) return false;
    if (inputs[0].rank() < 3 || !decided(inputs[0].shape()) || !decided(shapes.scores())) return false;
    if (inputs.size() < 4) return true;
    const Shape& mask = inputs[3].shape();
    return mask.has_rank() && (mask.rank() < 3 || mask[mask.rank() - 3] == Dim(1));
}

// The output and the logarithms of the sums.
std::vector<Tensor> attend(const OpView& view, const std::vector<Tensor>& inputs) {
    const AttentionShapes shapes = attention_shapes(view);
    const auto attention = [&](const std::vector<Tensor>& given) {
        return apply(given[0].graph_data(), *find_op("attention"), given, attention_attributes(view));
    };
    if (!is_group_of_tokens(view, shapes, inputs)) return attention(inputs);
    // A key is read once for its group then: the usual case when text is generated token by token.
    std::vector<Tensor> grouped = inputs;
    std::vector<Dim> dims = dims_before_heads(inputs[0].shape()).dims();
    dims.insert(dims.end(), {shapes.kv_heads, shapes.group, shapes.features});
    grouped[0] = reshape(inputs[0], Shape(std::move(dims)));
    const std::vector<Tensor> results = attention(grouped);
    return {reshape(results[0], shapes.with_heads(shapes.heads, {shapes.tokens, shapes.value_features})),
            reshape(results[1], shapes.rows())};
}

OpDef scaled_dot_product_attention() {
    OpDef def = attention_frame(
        "scaled_dot_product_attention",
        "softmax(scale * query @ key^T + mask) @ value, the softmax over the tokens of the key. The scores are never "
        "stored as a whole, neither here nor for the gradient, which computes them again from one number for each row: "
        "memory grows with the tokens, not with their square. The method is that of FlashAttention-2 (Dao, "
        "https://arxiv.org/abs/2307.08691, algorithms 1 and 2). Leading dims broadcast. Heads of the query share those "
        "of key and value in groups of neighbours when they are a multiple of them (grouped and multi-query "
        "attention). A mask is bool, true where a query may attend, or is added to the scores; with `causal` query "
        "token i attends to the key tokens 0 to i, counted from the first of each also when their numbers differ, and "
        "a mask may restrict it further. A row that attends to nothing gives zeros, and zeros as gradients, as in "
        "PyTorch; a score of NaN or +inf makes its row NaN. What is masked is multiplied by 0, so it must be finite. "
        "16-bit floats are computed in float32. The gradient by the mask alone, and derivatives of derivatives, do "
        "store the scores.");
    def.args.push_back(mask_arg());
    def.results = {"y"};
    def.infer = [](const OpView& v) { return std::vector{output_type(v, check_operands(v, 3))}; };
    def.body = CompositeBody{[](CompositeContext& c) { return std::vector{attend(c.op, c.inputs())[0]}; }};
    def.gradient = FromExpansion{};
    def.mpsgraph = {"scaledDotProductAttention"};
    def.onnx = "Attention";
    return def;
}

OpDef attention_with_sinks() {
    OpDef def = attention_frame(
        "scaled_dot_product_attention_with_sinks",
        "scaled_dot_product_attention in which each head has a sink: one more score that takes part in the softmax of "
        "every row and has no value, so that a head may attend to nothing. Everything else is as it is there.");
    def.args.push_back({"sinks", "one score for each head of the query, [heads], of the same dtype"});
    def.args.push_back(mask_arg());
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const AttentionShapes shapes = check_operands(v, 4);
        require_same_dtype(v, 0, 3);
        const Shape& sinks = v.in_shape(3);
        if (sinks.has_rank() && (sinks.rank() != 1 || (shapes.ranked && !dims_agree(sinks[0], shapes.heads)))) {
            v.fail(concat(input_name(v, 3), " has shape ", sinks.str(), ", but one score for each head is needed",
                          shapes.ranked ? concat(", ", Shape{shapes.heads}.str()) : ""));
        }
        return std::vector{output_type(v, shapes)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        std::vector<Tensor> inputs{c.input(0), c.input(1), c.input(2)};
        if (c.has_input(4)) inputs.push_back(c.input(4));
        const std::vector<Tensor> attended = attend(c.op, inputs);
        // A sum that has grown by exp(sink) divides by sum / (sum + exp(sink)) of what it was. A sink of -inf is none,
        // also where there is nothing else.
        Tensor sinks = widened(c.input(3));
        const double lowest = sinks.dtype() == DType::float64 ? std::numeric_limits<double>::lowest()
                                                              : std::numeric_limits<float>::lowest();
        sinks = maximum(sinks, constant_like(lowest, sinks));
        if (attention_shapes(c.op).has_heads) sinks = expand_dims(sinks, {-1});
        const Tensor share = expand_dims(sigmoid(attended[1] - sinks), {-1});
        return std::vector{narrowed(widened(attended[0]) * share, c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    def.mpsgraph = {"scaledDotProductAttention"};
    return def;
}

}  // namespace

std::vector<OpDef> attention_ops() {
    return {scaled_dot_product_attention(), attention_with_sinks(), attention(), query_gradient(),
            key_value_gradient()};
}

}  // namespace topstitch::ops
