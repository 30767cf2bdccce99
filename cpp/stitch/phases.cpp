// Orders the members of a region into passes over the row.
// See phases.h.
#include "stitch/phases.h"

#include <algorithm>

#include "stitch/cost.h"

namespace topstitch::stitch {

Phases find_phases(const Partition& partition, const Region& region) {
    Phases phases;
    for (const auto& [op, member] : region.members) {
        const OpAccess& access = partition.accesses[static_cast<std::size_t>(op)];
        int pass = 0;
        for (const Request& request : access.requests) {
            const auto producer = phases.pass.find(request.tensor.op);
            if (producer == phases.pass.end()) continue;
            const bool reduce = partition.accesses[static_cast<std::size_t>(request.tensor.op)].is_reduce;
            pass = std::max(pass, producer->second + (reduce ? 1 : 0));
        }
        phases.pass[op] = pass;
        phases.row[op] = !access.is_reduce && region.depends_on_row(member.home);
        if (access.is_reduce) phases.passes = std::max(phases.passes, pass + 1);
    }
    for (OpId op : region.outputs) {
        if (phases.row.at(op)) phases.passes = std::max(phases.passes, phases.pass.at(op) + 1);
    }
    return phases;
}

std::vector<OpId> find_kept(const Partition& partition, const Region& region, const Phases& phases) {
    // Reader passes: a row value is evaluated wherever something of a later pass asks for it.
    std::map<OpId, int> last_use;
    for (const auto& [op, member] : region.members) {
        for (const Request& request : partition.accesses[static_cast<std::size_t>(op)].requests) {
            const OpId producer = request.tensor.op;
            if (!region.members.contains(producer) || !phases.row.at(producer)) continue;
            last_use[producer] = std::max(last_use[producer], phases.pass.at(op));
        }
    }
    std::vector<OpId> kept;
    std::map<OpId, double> chain;  // arithmetic to compute it again in a later pass
    for (const auto& [op, member] : region.members) {
        if (!phases.row.at(op)) continue;
        double cost = partition.accesses[static_cast<std::size_t>(op)].cost;
        for (const Request& request : partition.accesses[static_cast<std::size_t>(op)].requests) {
            const auto part = chain.find(request.tensor.op);
            if (part != chain.end()) cost += part->second;
        }
        const auto use = last_use.find(op);
        const bool needed_later = use != last_use.end() && use->second > phases.pass.at(op);
        if (needed_later && cost > max_repass_cost && !member.partial) {
            kept.push_back(op);
            cost = 0;
        }
        chain[op] = cost;
    }
    return kept;
}

int count_passes(const Partition& partition, const Region& region) {
    return find_phases(partition, region).passes;
}

}  // namespace topstitch::stitch
