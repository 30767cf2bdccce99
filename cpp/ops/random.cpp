// Random states, and the frame of the operations that draw from them.
// The generator is in philox.cpp, the distributions in random_distributions.cpp.
#include "graph/random_state.h"
#include "ops/families.h"
#include "ops/random_rules.h"

namespace topstitch::ops {

using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr const char* not_smooth = "random numbers depend on the state, which is an integer";
const ArgDef state_arg{"state",
                       "uint64[3] of random_state, or what another draw left; the graph's own, which "
                       "differs from run to run, when left out",
                       false, true};

TensorType state_type() {
    return {DType::uint64, Shape{Dim(state_size)}};
}

ValueId number(Builder& b, std::int64_t value) {
    return b.constant_int(value, DType::uint64);
}

// Element `at` of a small vector whose elements are at hand.
Value pick(ElementContext& c, const Index& at, const std::vector<ValueId>& elements) {
    const ValueId position = c.b.index_value(at);
    ValueId chosen = elements.back();
    for (std::size_t k = elements.size() - 1; k-- > 0;) {
        const ValueId here = c.b.constant_int(static_cast<std::int64_t>(k), DType::int64);
        chosen = c.b.select(c.b.op(ScalarOp::eq, position, here), elements[k], chosen);
    }
    return Value{chosen};
}

OpDef random_state_op() {
    OpDef def;
    def.name = "random_state";
    def.doc =
        "The state of a stream of random numbers, a uint64 tensor of three elements: the low and the high half of a "
        "128-bit counter, and a key. Draws give the state to go on from as their second result; equal states give "
        "equal numbers on every device. A state may be kept in a variable, fed, and be a target.";
    def.attributes = {required_attr("seed", AttributeKind::integer, "the key: one stream for each"),
                      optional_attr("counter_low", AttributeKind::integer, std::int64_t{0},
                                    "where in the stream to begin, in blocks of four 32-bit words; the low 64 bits"),
                      optional_attr("counter_high", AttributeKind::integer, std::int64_t{0}, "the high 64 bits")};
    def.results = {"state"};
    def.infer = [](const OpView&) { return std::vector{state_type()}; };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const auto part = [&c](const char* name) { return number(c.b, c.op.integer(name)); };
        return pick(c, at[0], {part("counter_low"), part("counter_high"), part("seed")});
    }};
    def.mpsgraph = {"randomPhiloxStateTensorWithSeed", "randomPhiloxStateTensorWithCounterLow:counterHigh:key:"};
    return def;
}

OpDef random_stream() {
    OpDef def;
    def.name = std::string(random_stream_op);
    def.doc =
        "The random state of an operation that was given none. It is made from the number of runs that drew before, "
        "the graph's seed (both from the graph's variable), and the operation's own number: counter low 0, counter "
        "high stream * 2^40 + runs (modulo 2^40), key the seed. The low counter is left to the draw, so that neither "
        "streams nor runs overlap.";
    def.internal = true;
    def.args = {{"variable", "uint64[2]: runs, seed"}};
    def.attributes = {required_attr("stream", AttributeKind::integer, "the number of the operation that draws")};
    def.results = {"state"};
    def.infer = [](const OpView& v) {
        const TensorType wanted{DType::uint64, Shape{Dim(2)}};
        if (v.input(0) != wanted) {
            v.fail_type(concat("input `variable` is ", v.input(0).str(), ", but must be ", wanted.str(),
                               ": the number of runs, and the seed"));
        }
        const std::int64_t stream = v.integer("stream");
        if (stream < 0 || stream >= max_random_streams) {
            v.fail(concat("stream is ", stream, ", but must be at least 0 and less than ", max_random_streams));
        }
        return std::vector{state_type()};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        Builder& b = c.b;
        const ValueId runs =
            b.op(ScalarOp::bit_and, c.operand(0, {Index(0)}).re, number(b, (std::int64_t{1} << random_run_bits) - 1));
        const ValueId stream = number(b, c.op.integer("stream") << random_run_bits);
        return pick(c, at[0], {number(b, 0), b.op(ScalarOp::bit_or, runs, stream), c.operand(0, {Index(1)}).re});
    }};
    return def;
}

OpDef random_iteration() {
    OpDef def;
    def.name = std::string(random_iteration_op);
    def.doc =
        "The random state of an operation in the body of a loop that was given none: that of the run, with another key "
        "for each iteration, 64 bits of Philox for the iteration and the state. Loops in each other do so in turn.";
    def.internal = true;
    def.args = {{"state", "the state for the whole loop"}, {"iteration", "its number, an integer scalar"}};
    def.results = {"state"};
    def.infer = [](const OpView& v) {
        require_state(v, 0);
        require_integer(v, 1);
        require_scalar(v, 1);
        return std::vector{state_type()};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        Builder& b = c.b;
        const ValueId high = c.operand(0, {Index(1)}).re;
        const ValueId iteration = b.cast(c.operand(1, {}).re, DType::uint64);
        const auto words = philox(b, iteration, high, c.operand(0, {Index(2)}).re);
        const ValueId key = b.op(ScalarOp::bit_or, words[0], b.op(ScalarOp::shl, words[1], number(b, 32)));
        return pick(c, at[0], {c.operand(0, {Index(0)}).re, high, key});
    }};
    return def;
}

// --- Draws.

void check_shape(const OpView& view) {
    const Shape& shape = view.shape("shape");
    if (!shape.has_rank()) view.fail("the shape has no rank; list its dims");
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (!shape[axis].is_unknown()) continue;
        view.fail(concat("dim ", axis, " of the shape ", shape.str(),
                         " is open (-1); give its length, the name of a dim that is fed, or use ", view.def().name,
                         "_like with a tensor of the shape"));
    }
}

AttrDef shape_attr() {
    return required_attr("shape", AttributeKind::shape, "the shape of the values; its dims are lengths or names");
}

OpDef advance_op() {
    OpDef def;
    def.name = "random_advance";
    def.doc =
        "The random state after a draw: the counter moved past all groups of 16 blocks from which elements took words.";
    def.internal = true;
    def.args = {{"state", "the state before"}};
    def.attributes = {shape_attr(), required_attr("words", AttributeKind::integer, "for each element: 1, 2 or 4")};
    def.results = {"state"};
    def.infer = [](const OpView& v) {
        require_state(v, 0);
        check_shape(v);
        const std::int64_t words = v.integer("words");
        if (words != 1 && words != 2 && words != 4) v.fail(concat("words is ", words, ", but must be 1, 2 or 4"));
        return std::vector{state_type()};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        Builder& b = c.b;
        const std::int64_t group = elements_per_group(static_cast<int>(c.op.integer("words")));
        const ValueId elements = b.cast(b.index_value(c.op.shape("shape").num_elements()), DType::uint64);
        const ValueId groups = b.div(b.add(elements, number(b, group - 1)), number(b, group));
        const ValueId blocks = b.mul(groups, number(b, blocks_per_group));
        const ValueId low = b.add(c.operand(0, {Index(0)}).re, blocks);
        const ValueId carry = b.cast(b.op(ScalarOp::lt, low, blocks), DType::uint64);
        return pick(c, at[0], {low, b.add(c.operand(0, {Index(1)}).re, carry), c.operand(0, {Index(2)}).re});
    }};
    return def;
}

std::vector<AttrDef> draw_attributes(const Distribution& distribution) {
    std::vector<AttrDef> attributes = distribution.attributes;
    attributes.push_back(optional_attr("dtype", AttributeKind::dtype, distribution.dtype, "the dtype of the values"));
    return attributes;
}

void check_draw(const OpView& view, const Distribution& distribution) {
    const DType dtype = view.dtype("dtype");
    if (!distribution.allowed.contains(dtype)) {
        view.fail_type(
            concat("dtype is ", name_of(dtype), ", but must be ", distribution.allowed.str(), "; use cast afterwards"));
    }
    if (distribution.check) distribution.check(view);
}

// Computes the values: one primitive operation.
OpDef draw_op(const Distribution& distribution) {
    OpDef def;
    def.name = "draw_" + distribution.name.substr(std::string("random_").size());
    def.doc = "The values of " + distribution.name + ".";
    def.internal = true;
    def.args = {{"state", "the random state"}};
    def.attributes = draw_attributes(distribution);
    def.attributes.insert(def.attributes.begin(), shape_attr());
    def.results = {"values"};
    def.infer = [distribution](const OpView& v) {
        require_state(v, 0);
        check_shape(v);
        check_draw(v, distribution);
        return std::vector{TensorType{v.dtype("dtype"), v.shape("shape")}};
    };
    def.body = ElementBody{[distribution](ElementContext& c, const Indices& at) {
        return distribution.element(c, RandomWords(c, at, distribution.words(c.op)));
    }};
    return def;
}

OpDef public_op(const Distribution& distribution, const OpDef& draw) {
    OpDef def;
    def.name = distribution.name;
    def.doc = distribution.doc;
    def.args = {state_arg};
    def.attributes = draw.attributes;
    def.results = {"values", "new_state"};
    def.infer = [distribution](const OpView& v) {
        if (v.num_inputs() > 0) require_state(v, 0);
        check_shape(v);
        check_draw(v, distribution);
        return std::vector{TensorType{v.dtype("dtype"), v.shape("shape")}, state_type()};
    };
    def.body = CompositeBody{[distribution, name = draw.name](CompositeContext& c) {
        const Tensor values = apply(name, {c.input(0)}, shared_attributes(c.op, *find_op(name)));
        const auto words = static_cast<std::int64_t>(distribution.words(c.op));
        const Tensor state =
            apply("random_advance", {c.input(0)}, {{"shape", c.op.attribute("shape")}, {"words", words}});
        return std::vector{values, state};
    }};
    def.draws = [](const OpView&) { return true; };
    def.mpsgraph = distribution.mpsgraph;
    def.onnx = distribution.onnx;
    return def;
}

// The same in the shape of another tensor, which may be unknown until run time.
OpDef like_op(const Distribution& distribution) {
    OpDef def;
    def.name = distribution.name + "_like";
    def.doc =
        distribution.name + " in the shape of another tensor, which may be unknown until run time. " + distribution.doc;
    def.args = {{"like", "a tensor of which only the shape matters"}, state_arg};
    def.attributes = draw_attributes(distribution);
    def.results = {"values", "new_state"};
    def.infer = [distribution](const OpView& v) {
        if (v.num_inputs() > 1) require_state(v, 1);
        check_draw(v, distribution);
        return std::vector{TensorType{v.dtype("dtype"), v.in_shape(0)}, state_type()};
    };
    def.body = CompositeBody{[name = distribution.name](CompositeContext& c) {
        const OpDef& base = *find_op(name);
        NamedAttributes attributes = shared_attributes(c.op, base);
        attributes.emplace_back("shape", c.op.in_shape(0));
        return apply(c.input(0).graph_data(), base, {c.input(1)}, attributes);
    }};
    def.draws = [](const OpView&) { return true; };
    def.onnx = distribution.onnx_like;
    return def;
}

}  // namespace

void require_state(const OpView& view, int k) {
    const TensorType& type = view.input(k);
    const Shape& shape = type.shape;
    const bool fits = !shape.has_rank() || (shape.rank() == 1 && dims_agree(shape[0], Dim(state_size)));
    if (type.dtype == DType::uint64 && fits) return;
    view.fail_type(concat(input_name(view, k), " is ", type.str(), ", but a random state is ", state_type().str(),
                          "; make one with random_state"));
}

int words_for_dtype(const OpView& view) {
    return size_of(view.dtype("dtype")) == 8 ? 2 : 1;
}

ValueId joined_words(ElementContext& c, const RandomWords& words, int count) {
    if (count == 1) return words.word(0);
    return c.b.op(ScalarOp::bit_or, words.word(0), c.b.op(ScalarOp::shl, words.word(1), number(c.b, 32)));
}

std::vector<OpDef> draw_ops(const Distribution& distribution) {
    OpDef draw = draw_op(distribution);
    OpDef plain = public_op(distribution, draw);
    return {std::move(draw), std::move(plain), like_op(distribution)};
}

std::vector<OpDef> random_ops() {
    std::vector<OpDef> defs = {random_state_op(), random_stream(), random_iteration(), advance_op()};
    for (OpDef& def : distribution_ops()) defs.push_back(std::move(def));
    for (OpDef& def : defs) {
        def.family = "random";
        def.gradient = NotDifferentiable{not_smooth};
    }
    return defs;
}

}  // namespace topstitch::ops
