// What reductions share: the axes that they reduce, their result's shape, and the way back to the input's axes.
// Used by reduction.cpp and reduction_composite.cpp.
#pragma once

#include "ops/rules.h"

namespace topstitch::ops {

// The attributes `axes` and `keepdims`.
std::vector<AttrDef> reduction_attributes();

// True for each axis of input 0 that is reduced.
std::vector<bool> reduced_axes(const OpView& view);
Shape reduced_shape(const OpView& view);
// The extents of the reduced axes, outermost first.
std::vector<Dim> reduced_dims(const OpView& view);
// The index into input 0 of the element that the reduction meets at (at, reduce).
Indices unreduced_index(const OpView& view, const Indices& at, const Indices& reduce);

// An attribute list for another reduction over the same axes.
NamedAttributes same_axes(const OpView& view, bool keepdims);
// A tensor of the result's shape, given back its reduced axes with length 1, so that it broadcasts against the input.
Tensor with_reduced_axes(const OpView& view, const Tensor& x);

// A reduction with the common attributes and one input.
OpDef reduction_op(std::string name, std::string doc);

}  // namespace topstitch::ops
