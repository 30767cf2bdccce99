// The order of the passes.
// Folding comes before simplification, so that computed zeros and ones are seen.
#include <algorithm>

#include "passes/bodies.h"
#include "passes/passes.h"

namespace topstitch {

Program tidy(const Program& program, bool keep_library) {
    return dce(cse(simplify(turn(fold(cse(expand(dce(program), keep_library)))))));
}

Program canonicalize(const Program& program, bool keep_library) {
    Program tidied = tidy(program, keep_library);
    const bool has_bodies = std::any_of(tidied.graph->ops.begin(), tidied.graph->ops.end(), is_control);
    if (has_bodies && keep_library) tidied = dce(recall(cse(hoist(bodies(tidied, keep_library)))));
    return anchor(tidied);
}

Program canonicalize_body(const Program& program, bool keep_library) {
    return anchor(tidy(program, keep_library));
}

}  // namespace topstitch
