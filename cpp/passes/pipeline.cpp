// The order of the passes.
// Folding comes before simplification, so that computed zeros and ones are seen.
#include "passes/passes.h"

namespace topstitch {

Program canonicalize(const Program& program) {
    return anchor(dce(cse(simplify(fold(cse(expand(dce(program))))))));
}

}  // namespace topstitch
