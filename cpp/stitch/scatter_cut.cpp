// Chooses how the output of a scatter is cut into parts that run side by side.
// See ScatterCut in schedule.h.
#include <algorithm>

#include "stitch/schedule.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t parts_for_each_thread = 4;  // so that a late thread finds something left to do
constexpr std::int64_t least_run = 64;             // elements of a row that are worth a part
constexpr std::int64_t least_row = 16;             // elements that an index stands for, to be looked at in vain

}  // namespace

// An axis along which each update knows its place is cut at no cost, the outermost that has room. On another axis every
// part looks at every index: that pays when each stands for a row of elements, and for no more parts than threads.
ScatterCut choose_scatter_cut(const Program& program, const OpAccess& access, OpId op, const StitchOptions& options,
                              const Machine& machine) {
    const Shape& shape = program.graph->type({op, 0}).shape;
    ScatterCut cut;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (access.scatter->direct[static_cast<std::size_t>(axis)] < 0) continue;
        const bool in_rows = axis + 1 == shape.rank();
        const std::int64_t room = options.estimate(shape[axis]) / (in_rows ? least_run : 1);
        const std::int64_t parts = std::min<std::int64_t>(room, machine.threads * parts_for_each_thread);
        if (parts > cut.parts) {
            cut.axis = axis;
            cut.parts = parts;
        }
        if (parts >= machine.threads) return cut;
    }
    const loopir::VarId lanes = access.scatter->lanes;
    if (lanes < 0 || options.estimate(access.vars[static_cast<std::size_t>(lanes)]) < least_row) return cut;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (access.scatter->direct[static_cast<std::size_t>(axis)] >= 0) continue;
        const std::int64_t parts = std::min<std::int64_t>(options.estimate(shape[axis]), machine.threads);
        if (parts > cut.parts) cut = {axis, parts, true};
    }
    return cut;
}

std::string str(const ScatterCut& cut) {
    if (cut.parts == 1) return "base, then updates in order";
    return concat("parallel part(", cut.parts, ") of axis ", cut.axis, ": base, then updates in order",
                  cut.searched ? ", each part those that go there" : "");
}

}  // namespace topstitch::stitch
