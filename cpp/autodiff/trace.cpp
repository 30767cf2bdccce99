// The way of gradients through the graph, as text.
// Long ways are abbreviated in the middle.
#include "autodiff/trace.h"

#include <algorithm>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::autodiff {

namespace {

constexpr std::size_t most_shown = 12;  // operations of a path; of a longer one both ends

}  // namespace

std::string Trace::describe(OpId op) const {
    const OpNode& node = graph_->find(op);
    std::string details;
    const auto add = [&details](const std::string& detail) {
        if (!detail.empty()) details += (details.empty() ? "" : ", ") + detail;
    };
    if (!node.name.empty()) add("'" + node.name + "'");
    if (const auto whole = wholes_.find(op); whole != wholes_.end()) {
        // The operation that the user wrote, not what lies in between.
        OpId outermost = whole->second;
        for (auto next = wholes_.find(outermost); next != wholes_.end(); next = wholes_.find(outermost)) {
            outermost = next->second;
        }
        const OpNode& origin = graph_->find(outermost);
        add("part of `" + origin.def->name + "`" + (origin.name.empty() ? "" : " '" + origin.name + "'"));
        if (!node.location.known()) add(origin.location.str());
    }
    add(node.location.str());
    return "`" + node.def->name + "`" + (details.empty() ? "" : " (" + details + ")");
}

std::string Trace::path_through(OpId op, const std::unordered_set<TensorRef>& active) const {
    std::vector<OpId> path = {op};
    for (auto user = users_.find(op); user != users_.end(); user = users_.find(user->second)) {
        path.push_back(user->second);
    }
    std::reverse(path.begin(), path.end());
    // Down to where no operand is of interest any more; operands come before their users, so this ends.
    for (OpId current = op;;) {
        const std::vector<TensorRef>& inputs = graph_->find(current).inputs;
        const auto next =
            std::find_if(inputs.begin(), inputs.end(), [&](TensorRef ref) { return active.contains(ref); });
        if (next == inputs.end()) break;
        current = next->op;
        path.push_back(current);
    }

    std::string text;
    for (std::size_t k = 0; k < path.size(); ++k) {
        if (k > 0) text += " <- ";
        if (path.size() > most_shown && k == most_shown / 2) {
            const std::size_t skipped = path.size() - most_shown;
            text += concat("... (", skipped, " more) ... <- ");
            k += skipped;
        }
        text += describe(path[k]);
    }
    return text;
}

}  // namespace topstitch::autodiff
