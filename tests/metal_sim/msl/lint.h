// Rules of MSL that a C++ compiler does not know: what the language leaves out, and what it wants spelled.
// Stricter than Metal where that keeps kernels plain.
#pragma once

#include "msl/scan.h"
#include "msl/source.h"

namespace metal_sim::msl {

// CompileError for the first rule that is broken: of words and literals, and of declarations.
// `version` is that of the language, 100 * major + 10 * minor.
void lint_tokens(const Source& source, int version);
void lint_declarations(const Source& source, const Scan& scan);

// float4, uchar2, ...: scalar types followed by 2, 3 or 4.
bool is_vector_type(std::string_view word);

}  // namespace metal_sim::msl
