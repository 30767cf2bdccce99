// Runs one operation at a time: its body becomes a plain loop nest, which the interpreter runs.
// Composites are expanded into a scratch graph, whose operations are evaluated in creation order.
#include "ops/evaluate.h"

#include <string>

#include "graph/apply.h"
#include "loopir/interpret.h"
#include "ops/element_lowering.h"

namespace topstitch {

namespace {

// Everything about one call, with the types inferred.
struct Call {
    const OpDef& def;
    std::vector<NDArray> inputs;  // contiguous
    std::span<const Attribute> attributes;
    std::vector<TensorType> input_types;
    std::vector<TensorType> output_types;

    OpView view() const { return OpView(def, input_types, output_types, attributes); }
};

Sizes known_sizes(const Call& call, std::size_t output) {
    const auto sizes = call.output_types[output].shape.sizes();
    if (!sizes) {
        throw UnsupportedError(concat("[", call.def.name, "] the shape of its result, ",
                                      call.output_types[output].shape.str(),
                                      ", depends on more than the inputs' shapes"));
    }
    return *sizes;
}

// The memory of an array as the loop IR sees it: complex64 is pairs of float32.
Indices open_loops(loopir::Builder& builder, const char* prefix, const std::vector<Dim>& extents) {
    Indices at;
    for (const Dim& extent : extents) at.push_back(builder.begin_loop(concat(prefix, at.size()), extent));
    return at;
}

void close_loops(loopir::Builder& builder, const Indices& at) {
    for (std::size_t k = 0; k < at.size(); ++k) builder.end_loop();
}

Value reduce(ElementContext& context, const ReduceBody& body, const Indices& at) {
    loopir::Builder& builder = context.b;
    const OpView& view = context.op;
    const Combiner combiner = body.combiner(view);
    const bool positions = finds_position(combiner);
    const DType combined = positions ? view.input(0).dtype : view.output().dtype;
    if (is_complex(combined) && combiner != Combiner::sum) {
        throw UnsupportedError(concat("[", view.def().name, "] complex numbers can be summed only"));
    }
    const int first = builder.add_accumulator(combiner, compute_type(combined));
    const int second = is_complex(combined) ? builder.add_accumulator(combiner, compute_type(combined)) : -1;
    builder.init_acc(first);
    if (second >= 0) builder.init_acc(second);

    const Indices over = open_loops(builder, "r", body.domain(view));
    const Value value = body.element(context, at, over);
    builder.accumulate(first, value.re, positions ? builder.index_value(over.at(0)) : loopir::no_value);
    if (second >= 0) {
        builder.accumulate(second, value.is_complex() ? value.im : builder.constant(0.0, DType::float32));
    }
    close_loops(builder, over);

    if (positions) return Value{builder.cast(builder.acc_read(first, 1), compute_type(view.output().dtype))};
    Value result{builder.acc_read(first)};
    if (second >= 0) result.im = builder.acc_read(second);
    return result;
}

// Walks along the axis of a scan, for each place on the other axes.
void scan(ElementContext& context, const CumulativeBody& body, int target) {
    loopir::Builder& builder = context.b;
    const OpView& view = context.op;
    const Combiner combiner = body.combiner(view);
    const bool positions = finds_position(combiner);
    const DType dtype = view.output().dtype;
    const DType combined = compute_type(positions ? view.input(0).dtype : dtype);
    const auto axis = static_cast<std::size_t>(body.axis(view));
    std::vector<Dim> extents = view.out_shape().dims();
    const Dim length = extents[axis];
    extents[axis] = 1;
    Indices at = open_loops(builder, "i", extents);
    const int first = builder.add_accumulator(combiner, combined);
    const int second = is_complex(dtype) ? builder.add_accumulator(combiner, combined) : -1;
    builder.init_acc(first);
    if (second >= 0) builder.init_acc(second);
    const Index step = builder.begin_loop("r", length);
    at[axis] = body.reverse(view) ? Index(length) - 1 - step : step;
    const Value value = body.element(context, at);
    builder.accumulate(first, value.re, positions ? builder.index_value(at[axis]) : loopir::no_value);
    if (second >= 0) builder.accumulate(second, value.im);
    Value result{positions ? builder.cast(builder.acc_read(first, 1), compute_type(dtype)) : builder.acc_read(first)};
    if (second >= 0) result.im = builder.acc_read(second);
    store_element(builder, target, dtype, row_major_offset(view.out_shape(), at), result);
    builder.end_loop();
    close_loops(builder, at);
}

// Each element goes to where as many others come before it: all are compared with all.
void sort(ElementContext& context, const SortBody& body, int target) {
    loopir::Builder& builder = context.b;
    const OpView& view = context.op;
    const auto axis = static_cast<std::size_t>(body.axis(view));
    std::vector<Dim> extents = view.in_shape(0).dims();
    const Dim length = extents[axis];
    extents[axis] = 1;
    Indices at = open_loops(builder, "r", extents);
    const auto element = [&](const Index& position) {
        at[axis] = position;
        return body.element(context, at).re;
    };
    const Index i = builder.begin_loop("i", length);
    const loopir::ValueId own = element(i);
    const int rank = builder.add_accumulator(Combiner::sum, DType::int64);
    builder.init_acc(rank);
    const Index j = builder.begin_loop("j", length);
    const loopir::ValueId other = element(j);
    using loopir::ScalarOp;
    const bool numbers = is_floating(view.input(0).dtype);
    // Whether `a` is less than `b`, a NaN being the largest.
    const auto less = [&](loopir::ValueId a, loopir::ValueId b) {
        const loopir::ValueId below = builder.op(ScalarOp::lt, a, b);
        if (!numbers) return below;
        const loopir::ValueId only_b =
            builder.op(ScalarOp::bit_and, builder.op(ScalarOp::eq, a, a), builder.op(ScalarOp::ne, b, b));
        return builder.op(ScalarOp::bit_or, below, only_b);
    };
    const bool descending = body.descending(view);
    const loopir::ValueId first = descending ? less(own, other) : less(other, own);
    const loopir::ValueId behind = descending ? less(other, own) : less(own, other);
    const loopir::ValueId earlier = builder.op(ScalarOp::lt, builder.index_value(j), builder.index_value(i));
    const loopir::ValueId tie = builder.op(ScalarOp::bit_and, builder.op(ScalarOp::bit_not, behind), earlier);
    builder.accumulate(rank, builder.cast(builder.op(ScalarOp::bit_or, first, tie), DType::int64));
    builder.end_loop();
    const loopir::ValueId place = builder.acc_read(rank);
    const Dim& count = view.out_shape()[static_cast<int>(axis)];
    const loopir::ValueId wanted = builder.op(ScalarOp::lt, place, builder.index_value(Index(count)));
    at[axis] = Index::value(place);
    const DType dtype = view.output().dtype;
    const Value value{body.positions ? builder.cast(builder.index_value(i), compute_type(dtype)) : own};
    store_element(builder, target, dtype, row_major_offset(view.out_shape(), at), value, wanted);
    builder.end_loop();
    close_loops(builder, at);
}

// Writes the base into buffer `target`, then meets it with one update after the other.
void scatter(ElementContext& context, const ScatterBody& body, int target) {
    loopir::Builder& builder = context.b;
    const OpView& view = context.op;
    const DType dtype = view.output().dtype;
    const Indices at = open_loops(builder, "i", view.out_shape().dims());
    store_element(builder, target, dtype, row_major_offset(view.out_shape(), at), body.base(context, at));
    close_loops(builder, at);

    const Indices update = open_loops(builder, "u", body.domain(view));
    const ScatterBody::Place place = body.place(context, update);
    const Index offset = row_major_offset(view.out_shape(), place.at);
    const Value before = load_element(builder, target, dtype, offset, place.valid);
    const Value after = body.combine(context, before, body.update(context, update));
    store_element(builder, target, dtype, offset, after, place.valid);
    close_loops(builder, update);
}

NDArray run_kernel(const Call& call) {
    const OpView view = call.view();
    NDArray output(view.output().dtype, known_sizes(call, 0));

    loopir::Builder builder;
    for (std::size_t k = 0; k < call.inputs.size(); ++k) {
        const TensorType& type = call.input_types[k];
        builder.add_buffer(buffer_param(concat("in", k), type.dtype, type.shape, loopir::BufferParam::Role::input));
    }
    const auto* updates = std::get_if<ScatterBody>(&call.def.body);
    const auto role = updates != nullptr ? loopir::BufferParam::Role::inout : loopir::BufferParam::Role::output;
    const int target = builder.add_buffer(buffer_param("out", view.output().dtype, view.out_shape(), role));

    FunctionContext context(builder, view, [&](int k, const Indices& at, loopir::ValueId guard) {
        return load_element(builder, k, view.input(k).dtype, row_major_offset(view.in_shape(k), at), guard);
    });
    if (updates != nullptr) {
        scatter(context, *updates, target);
    } else if (const auto* running = std::get_if<CumulativeBody>(&call.def.body)) {
        scan(context, *running, target);
    } else if (const auto* sorted = std::get_if<SortBody>(&call.def.body)) {
        sort(context, *sorted, target);
    } else {
        const Indices at = open_loops(builder, "i", view.out_shape().dims());
        const auto* element = std::get_if<ElementBody>(&call.def.body);
        const Value value = element != nullptr ? element->element(context, at)
                                               : reduce(context, std::get<ReduceBody>(call.def.body), at);
        store_element(builder, target, view.output().dtype, row_major_offset(view.out_shape(), at), value);
        close_loops(builder, at);
    }

    const loopir::Kernel kernel = builder.finish(call.def.name);
    std::vector<void*> buffers;
    for (const NDArray& input : call.inputs) buffers.push_back(input.data());
    buffers.push_back(output.data());
    loopir::interpret(kernel, buffers, {});
    return output;
}

std::vector<NDArray> run_composite(const Call& call) {
    const auto graph = std::make_shared<GraphData>();
    const OpDef& placeholder = *find_op("placeholder");
    std::vector<Tensor> inputs;
    for (const TensorType& type : call.input_types) {
        inputs.push_back(apply(graph, placeholder, {}, {{"shape", type.shape}, {"dtype", type.dtype}}).front());
    }
    const std::vector<Tensor> results = expand_composite(graph, call.def, inputs, call.attributes);

    std::vector<bool> needed(graph->ops.size(), false);
    for (const Tensor& result : results) needed[static_cast<std::size_t>(result.ref().op)] = true;
    for (std::size_t id = needed.size(); id-- > 0;) {
        if (!needed[id]) continue;
        for (const TensorRef ref : graph->ops[id].inputs) needed[static_cast<std::size_t>(ref.op)] = true;
    }

    std::vector<std::vector<NDArray>> values(graph->ops.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) values[k] = {call.inputs[k]};
    for (std::size_t id = inputs.size(); id < values.size(); ++id) {
        if (!needed[id]) continue;
        const OpNode& node = graph->ops[id];
        std::vector<NDArray> operands;
        for (const TensorRef ref : node.inputs) {
            operands.push_back(values[static_cast<std::size_t>(ref.op)][static_cast<std::size_t>(ref.output)]);
        }
        values[id] = evaluate(*node.def, operands, node.attributes);
    }
    std::vector<NDArray> outputs;
    for (const Tensor& result : results) {
        const TensorRef ref = result.ref();
        outputs.push_back(values[static_cast<std::size_t>(ref.op)][static_cast<std::size_t>(ref.output)]);
    }
    return outputs;
}

}  // namespace

std::vector<NDArray> evaluate(const OpDef& def, std::span<const NDArray> inputs,
                              std::span<const Attribute> attributes) {
    Call call{def, {}, attributes, {}, {}};
    for (const NDArray& input : inputs) {
        call.inputs.push_back(input.contiguous());
        call.input_types.push_back({input.dtype(), Shape::of(input.shape())});
    }
    check_input_count(def, inputs.size());
    const ScopedDimAssumptions building(nullptr);  // all dims are numbers
    call.output_types = infer_types(def, call.input_types, attributes);

    if (std::holds_alternative<CompositeBody>(def.body)) return run_composite(call);
    if (std::holds_alternative<BuiltinBody>(def.body)) {
        if (def.name == "constant") return {call.view().array("value")};
        throw UnsupportedError(concat("[", def.name, "] has no value of its own outside of a run"));
    }
    if (std::holds_alternative<ControlBody>(def.body))
        throw UnsupportedError(concat("[", def.name, "] is performed by the runtime only"));
    return {run_kernel(call)};
}

}  // namespace topstitch
