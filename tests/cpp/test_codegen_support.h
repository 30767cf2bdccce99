// What the tests of emitted source share.
// Nothing here needs a device; running the source is in test_codegen_device.h.
#pragma once

#include <string>

#include "codegen/emit.h"
#include "topstitch/error.h"

namespace topstitch::testing {

// The Metal source, which there must be.
inline codegen::Source emitted(const loopir::Kernel& kernel, const codegen::EmitOptions& options = {}) {
    auto result = codegen::emit(kernel, codegen::msl_dialect(), options);
    if (const auto* refusal = std::get_if<codegen::Refusal>(&result)) throw InternalError(refusal->reason);
    return std::get<codegen::Source>(std::move(result));
}

// Why there is no Metal source; empty if there is.
inline std::string refusal_of(const loopir::Kernel& kernel) {
    const auto result = codegen::emit(kernel, codegen::msl_dialect(), {});
    const auto* refusal = std::get_if<codegen::Refusal>(&result);
    return refusal == nullptr ? "" : refusal->reason;
}

}  // namespace topstitch::testing
