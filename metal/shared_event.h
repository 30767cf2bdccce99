// An id<MTLSharedEvent> of the caller's as the runtime sees it.
// See runtime/outside_event.h.
#pragma once

#include <memory>

#include "runtime/outside_event.h"

namespace topstitch::metal {

std::shared_ptr<OutsideEvent> shared_event(void* event);

}  // namespace topstitch::metal
