// Lowers the body of one operation at a time: the step that evaluate() and the stitcher share.
// Who provides the operands (a load, or another body inlined) is the caller's business.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace topstitch {

// An ElementContext whose operands come from a function; guards are kept here.
class FunctionContext : public ElementContext {
public:
    // operand(k, at, guard): input k at `at`; loads must be under `guard` unless that is no_value.
    using OperandFn = std::function<Value(int k, const Indices& at, loopir::ValueId guard)>;
    FunctionContext(loopir::Builder& builder, const OpView& view, OperandFn operand,
                    loopir::ValueId guard = loopir::no_value)
        : ElementContext(builder, view), operand_(std::move(operand)), guard_(guard) {}

    Value operand(int k, const Indices& at) override { return operand_(k, at, guard_); }
    Value guarded(loopir::ValueId predicate, const std::function<Value()>& inner, const Value& otherwise) override;

private:
    OperandFn operand_;
    loopir::ValueId guard_;
};

// Whether a combiner is asked for the position of what it finds.
inline bool finds_position(Combiner combiner) {
    return combiner == Combiner::argmin || combiner == Combiner::argmax;
}
// What a scan gives along an axis of one element.
Value scan_of_one(ElementContext& context, const CumulativeBody& body, const Indices& at);

// Row-major offset in elements of `at` in a contiguous array of `shape`.
Index row_major_offset(const Shape& shape, const Indices& at);

// A buffer for a tensor: complex64 is two float32 for each element.
loopir::BufferParam buffer_param(std::string name, DType dtype, const Shape& shape, loopir::BufferParam::Role role);
// Loads element `offset` of `buffer` of dtype `dtype` (complex64: two float32 at 2*offset), widened to its compute
// type.
Value load_element(loopir::Builder& builder, int buffer, DType dtype, const Index& offset,
                   loopir::ValueId guard = loopir::no_value);
// Stores a value of compute_type(dtype), only where `guard` holds.
void store_element(loopir::Builder& builder, int buffer, DType dtype, const Index& offset, const Value& value,
                   loopir::ValueId guard = loopir::no_value);

}  // namespace topstitch
