// Remembers what the algebra of dims computed: a compilation asks the same few questions thousands of times.
// Each thread has a memory of its own, of fixed size, in which later answers replace earlier ones.
#pragma once

#include <cstdint>
#include <memory>

#include "core/dim_expr.h"

namespace topstitch {

enum class DimOperation : std::uint8_t { add, subtract, multiply, floor_div, mod, exact_div, min, max, nonnegative };

class DimMemo {
public:
    struct Entry {
        DimOperation operation = DimOperation::add;
        bool filled = false;
        Dim a, b, result;
    };

    static DimMemo& of_this_thread();

    // The entry of the operation on these operands, which are not unknown; it may hold other ones.
    Entry& place(DimOperation operation, const Dim& a, const Dim& b);

private:
    DimMemo();

    std::unique_ptr<Entry[]> entries_;
};

// What `compute` gives, or gave for equal operands.
template <typename Compute>
Dim remembered(DimOperation operation, const Dim& a, const Dim& b, const Compute& compute) {
    DimMemo::Entry& entry = DimMemo::of_this_thread().place(operation, a, b);
    if (entry.filled && entry.operation == operation && entry.a == a && entry.b == b) return entry.result;
    Dim result = compute();
    entry = {operation, true, a, b, result};
    return result;
}

}  // namespace topstitch
