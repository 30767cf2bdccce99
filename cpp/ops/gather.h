// Which element of a tensor each position of a gathered tensor stands for: what gather and scatter have in common.
// One rule for each pair: gather and scatter, gather_nd and scatter_nd, gather_along_axis and scatter_along_axis.
#pragma once

#include <string>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

// For operations whose inputs begin with a tensor and indices into it.
struct Picking {
    std::string suffix;  // of the operations' names
    std::vector<AttrDef> attributes;
    // The shape of what is gathered, or of the updates that are scattered.
    std::function<Shape(const OpView&)> shape;
    std::function<ScatterBody::Place(ElementContext&, const Indices& at)> place;
};

Picking pick_slices();      // along one axis
Picking pick_nd();          // by vectors of positions
Picking pick_along_axis();  // one element for each index

}  // namespace topstitch::ops
