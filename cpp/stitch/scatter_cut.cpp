// Chooses how the output of a scatter is cut into parts that run side by side.
// See ScatterCut in schedule.h.
#include <algorithm>

#include "stitch/schedule.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t parts_for_each_thread = 4;  // so that a late thread finds something left to do
constexpr std::int64_t least_run = 64;             // elements of a row that are worth a part
constexpr std::int64_t least_row = 16;             // elements that an index stands for, to be looked at in vain
// For machines with groups of threads.
constexpr std::int64_t most_pulled = std::int64_t{1} << 26;  // updates that all elements together look at
constexpr std::int64_t enough_elements = 8192;               // that one thread for each occupies the machine
constexpr std::int64_t group_parts = 256;
constexpr std::int64_t group_chunk = 512;

// Elements times the updates that each would look at, if it looked for its own.
bool can_pull(const Program& program, const OpAccess& access, OpId op, const StitchOptions& options) {
    const NodeView view(*program.graph, program.graph->op(op));
    const auto& body = std::get<ScatterBody>(program.graph->op(op).def->body);
    if (!body.joined(view.view)) return false;
    std::int64_t visits =
        std::max<std::int64_t>(options.estimate(program.graph->type({op, 0}).shape.num_elements()), 1);
    const std::vector<loopir::VarId>& direct = access.scatter->direct;
    const auto outputs =
        std::count_if(access.home.begin(), access.home.end(), [](const Index& index) { return !index.is_constant(); });
    for (auto var = static_cast<std::size_t>(outputs); var < access.vars.size(); ++var) {
        const bool known = std::find(direct.begin(), direct.end(), static_cast<loopir::VarId>(var)) != direct.end();
        if (known) continue;
        const std::int64_t updates = std::max<std::int64_t>(options.estimate(access.vars[var]), 1);
        if (updates > most_pulled / visits) return false;
        visits *= updates;
    }
    return true;
}

// Few elements or few updates: each element looks at all. Else an axis that is searched is cut in many parts, or one on
// which each update knows its place when there is none.
ScatterCut choose_group_cut(const Program& program, const OpAccess& access, OpId op, const StitchOptions& options) {
    const Shape& shape = program.graph->type({op, 0}).shape;
    ScatterCut cut;
    if (can_pull(program, access, op, options)) {
        cut.pulled = true;
        cut.shared = options.estimate(shape.num_elements()) < enough_elements;
        return cut;
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
        const bool direct = access.scatter->direct[static_cast<std::size_t>(axis)] >= 0;
        const bool in_rows = axis + 1 == shape.rank();
        const std::int64_t room = options.estimate(shape[axis]) / (direct && in_rows ? least_run : 1);
        const std::int64_t parts = std::min(room, group_parts);
        if (parts > cut.parts) cut = {axis, parts, !direct, direct ? 0 : group_chunk};
    }
    return cut;
}

}  // namespace

// An axis along which each update knows its place is cut at no cost, the outermost that has room. On another axis every
// part looks at every index: that pays when each stands for a row of elements, and for no more parts than threads.
ScatterCut choose_scatter_cut(const Program& program, const OpAccess& access, OpId op, const StitchOptions& options,
                              const Machine& machine) {
    if (machine.group_bytes > 0) return choose_group_cut(program, access, op, options);
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
    if (cut.pulled) return concat("each element joins the updates that name it", cut.shared ? ", in a group" : "");
    if (cut.parts == 1) return "base, then updates in order";
    return concat("parallel part(", cut.parts, ") of axis ", cut.axis, ": base, then updates in order",
                  cut.searched ? ", each part those that go there" : "",
                  cut.chunk > 0 ? concat(", found among ", cut.chunk, " at once") : "");
}

}  // namespace topstitch::stitch
