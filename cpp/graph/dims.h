// Questions about dims that only few operations ask; the others are in apply.h.
// Like those, they are decided by values during specialisation.
#pragma once

#include "topstitch/dim.h"

namespace topstitch {

// dim / divisor; unknown when there is a rest, or when it cannot be told (yet). During specialisation decided by the
// present values, and recorded when assumed.
Dim dims_quotient(const Dim& dim, const Dim& divisor);

}  // namespace topstitch
