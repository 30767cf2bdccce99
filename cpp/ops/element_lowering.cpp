// Loads, stores and guards as bodies of operations use them.
// complex64 lies in memory as pairs of float32, and lives in the loop IR as two values.
#include "ops/element_lowering.h"

namespace topstitch {

Value FunctionContext::guarded(loopir::ValueId predicate, const std::function<Value()>& inner, const Value& otherwise) {
    const loopir::ValueId outer = guard_;
    guard_ = outer == loopir::no_value ? predicate : b.op(loopir::ScalarOp::bit_and, outer, predicate);
    Value value;
    try {
        value = inner();
    } catch (...) {
        guard_ = outer;
        throw;
    }
    guard_ = outer;
    return select(predicate, value, otherwise);
}

Value scan_of_one(ElementContext& context, const CumulativeBody& body, const Indices& at) {
    if (finds_position(body.combiner(context.op))) return context.constant_int(0, context.op.output().dtype);
    return body.element(context, at);
}

Index row_major_offset(const Shape& shape, const Indices& at) {
    Index offset = 0;
    Dim stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        offset = offset + at[static_cast<std::size_t>(axis)] * stride;
        stride = stride * shape[axis];
    }
    return offset;
}

loopir::BufferParam buffer_param(std::string name, DType dtype, const Shape& shape, loopir::BufferParam::Role role) {
    const bool pairs = is_complex(dtype);
    const Dim size = shape.num_elements();
    return {std::move(name), pairs ? DType::float32 : dtype, role, pairs ? size * 2 : size};
}

Value load_element(loopir::Builder& builder, int buffer, DType dtype, const Index& offset, loopir::ValueId guard) {
    if (!is_complex(dtype)) return Value{builder.load(buffer, offset, guard)};
    const Index pair = offset * 2;
    return Value{builder.load(buffer, pair, guard), builder.load(buffer, pair + 1, guard)};
}

void store_element(loopir::Builder& builder, int buffer, DType dtype, const Index& offset, const Value& value,
                   loopir::ValueId guard) {
    if (!is_complex(dtype)) {
        builder.store(buffer, offset, value.re, guard);
        return;
    }
    const Index pair = offset * 2;
    builder.store(buffer, pair, value.re, guard);
    builder.store(buffer, pair + 1, value.is_complex() ? value.im : builder.constant(0.0, DType::float32), guard);
}

}  // namespace topstitch
