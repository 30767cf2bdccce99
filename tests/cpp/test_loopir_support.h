// Kernels that several tests of the loop IR build.
// They have the form in which the stitcher builds them.
#pragma once

#include "loopir/builder.h"

namespace topstitch::loopir {

// Softmax of each row in three loops; the exponentials of the row are kept in a local buffer.
inline Kernel softmax_rows(const Dim& rows, const Dim& cols, DType from, DType to) {
    Builder b;
    const int x = b.add_buffer({"x", from, BufferParam::Role::input, rows * cols});
    const int y = b.add_buffer({"y", to, BufferParam::Role::output, rows * cols});
    const int t = b.add_buffer({"t", DType::float32, BufferParam::Role::local, cols});
    const int highest = b.add_accumulator(Combiner::max, DType::float32);
    const int total = b.add_accumulator(Combiner::sum, DType::float32);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(highest);
    Index j = b.begin_loop("j", cols);
    b.accumulate(highest, b.load(x, r * cols + j));
    b.end_loop();
    const ValueId m = b.acc_read(highest);
    b.init_acc(total);
    j = b.begin_loop("k", cols);
    const ValueId e = b.op(ScalarOp::exp, b.sub(b.load(x, r * cols + j), m));
    b.store(t, j, e);
    b.accumulate(total, e);
    b.end_loop();
    const ValueId s = b.acc_read(total);
    j = b.begin_loop("l", cols);
    b.store(y, r * cols + j, b.div(b.load(t, j), s));
    b.end_loop();
    b.end_loop();
    return b.finish("softmax");
}

}  // namespace topstitch::loopir
