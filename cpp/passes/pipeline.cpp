// The order of the passes.
// Folding comes before simplification, so that computed zeros and ones are seen.
#include "passes/passes.h"

namespace topstitch {

Program canonicalize(const Program& program, bool keep_library) {
    return anchor(dce(cse(simplify(fold(cse(expand(dce(program), keep_library)))))));
}

}  // namespace topstitch
