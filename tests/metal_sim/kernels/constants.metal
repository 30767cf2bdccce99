// Function constants: one that must have a value, one that may have one, and what depends on them.
// test_libraries.mm gives them values.
#include <metal_stdlib>
using namespace metal;

constant uint count [[function_constant(0)]];
constant float factor [[function_constant(3)]];
constant bool has_factor = is_function_constant_defined(factor);
constant bool negate [[function_constant(7)]];

kernel void scaled(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float value = x[i] * float(count);
    if (has_factor) value *= factor;
    if (negate) value = -value;
    x[i] = value;
}
