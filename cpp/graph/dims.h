// Questions about dims and shapes that only few operations ask; the others are in apply.h.
// Like those, they are decided by values during specialisation.
#pragma once

#include "topstitch/shape.h"

namespace topstitch {

// True when the two may be the same, dim by dim (dims_agree in apply.h); an unknown rank may be any.
bool shapes_agree(const Shape& a, const Shape& b);

// dim / divisor; unknown when there is a rest, or when it cannot be told (yet). During specialisation decided by the
// present values, and recorded when assumed.
Dim dims_quotient(const Dim& dim, const Dim& divisor);

}  // namespace topstitch
