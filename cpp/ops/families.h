// The explicit list of op families: each file of this folder gives its operations through one function.
// registry.cpp concatenates them.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

std::vector<OpDef> builtin_ops();          // builtin.cpp: placeholder, constant, variable, read, assign, stop_gradient
std::vector<OpDef> absent_ops();           // absent.cpp: what stands for inputs that are left out
std::vector<OpDef> recurrent_ops();        // recurrent.cpp: rnn, lstm, gru, and their steps
std::vector<OpDef> control_ops();          // control.cpp: if_else, while_loop, scan
std::vector<OpDef> unary_ops();            // unary.cpp: arithmetic, rounding, signs, tests, bits
std::vector<OpDef> unary_math_ops();       // unary_math.cpp: exp, log, sqrt, sin, erf, ...
std::vector<OpDef> binary_ops();           // binary.cpp: sums, products, quotients, remainders, extremes
std::vector<OpDef> binary_math_ops();      // binary_math.cpp: power, atan2, hypot, copysign, complex
std::vector<OpDef> binary_logic_ops();     // binary_logic.cpp: comparison, logic, bits
std::vector<OpDef> ternary_ops();          // ternary.cpp: where, clamp, fma
std::vector<OpDef> conversion_ops();       // conversion.cpp: cast, complex parts, full_like
std::vector<OpDef> conversion_bits_ops();  // conversion_bits.cpp: bitcast, planes of complex numbers
std::vector<OpDef> reduction_ops();        // reduction.cpp: sum, product, max, min, all, any, argmax, argmin
std::vector<OpDef> composite_reduction_ops();  // reduction_composite.cpp: mean, variance, logsumexp, norms
std::vector<OpDef> cumulative_ops();           // cumulative.cpp: cumulative_sum, cumulative_product, ...
std::vector<OpDef> sort_ops();                 // sort.cpp: sort, argsort, top_k, bottom_k
std::vector<OpDef> movement_ops();             // movement.cpp: reshape, transpose, squeeze, reverse, ...
std::vector<OpDef> memory_ops();               // memory.cpp: strided_view
std::vector<OpDef> like_ops();                 // like.cpp: broadcast_to, and shapes taken from other tensors
std::vector<OpDef> slicing_ops();              // slicing.cpp: slice, slice_update
std::vector<OpDef> joining_ops();              // slicing_join.cpp: concat, stack, interleave
std::vector<OpDef> splitting_ops();            // slicing_split.cpp: split, tile
std::vector<OpDef> padding_ops();              // padding.cpp: pad
std::vector<OpDef> indexing_ops();             // indexing.cpp: coordinates, one_hot, band_part
std::vector<OpDef> gather_ops();               // gather.cpp: gather, gather_nd, gather_along_axis
std::vector<OpDef> scatter_ops();              // scatter.cpp: scatter, scatter_nd, scatter_along_axis
std::vector<OpDef> activation_ops();           // activation.cpp: relu ... softmax, log_softmax
std::vector<OpDef> loss_ops();                 // loss.cpp
std::vector<OpDef> contraction_ops();          // contraction.cpp: matmul
std::vector<OpDef> attention_ops();            // attention.cpp: scaled dot product attention
std::vector<OpDef> convolution_ops();          // convolution.cpp: convolutions over one to three axes, transposed ones
std::vector<OpDef> window_contraction_ops();   // convolution_body.cpp: the contractions that these become
std::vector<OpDef> window_ops();               // window.cpp: sums, maxima and counts of windows
std::vector<OpDef> window_tap_ops();           // window_taps.cpp: which element of a window is the largest
std::vector<OpDef> pooling_ops();              // pooling.cpp: max_pool2d, avg_pool2d, l2_pool2d, ...
std::vector<OpDef> random_ops();               // random.cpp: random states, and draws from
std::vector<OpDef> distribution_ops();         // random_distributions.cpp: random_uniform, random_normal, ...
std::vector<OpDef> dropout_ops();              // dropout.cpp
std::vector<OpDef> normalization_ops();        // normalization.cpp: batch_norm, layer_norm, ...
std::vector<OpDef> optimizer_ops();            // optimizer.cpp: sgd, adam, rmsprop, clipping of gradients

}  // namespace topstitch::ops
