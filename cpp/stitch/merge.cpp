// Merges two regions: finds each variable of one as an expression over the variables of the other, from the
// demand that the consumer's request and the producer's element are the same.
#include <algorithm>
#include <optional>

#include "ops/element_lowering.h"
#include "stitch/cost.h"
#include "stitch/region.h"

namespace topstitch::stitch {

namespace {

using loopir::IndexTerm;
using loopir::VarId;
using Binding = std::vector<std::optional<Index>>;  // by variable of the region that is rewritten

bool is_plain_var(const Index& index, VarId& var) {
    if (index.parts().size() != 1 || !(index.constant() == Dim(0))) return false;
    const Index::Part& part = index.parts()[0];
    if (part.term.kind != IndexTerm::Kind::var || !(part.coefficient == Dim(1))) return false;
    var = part.term.var;
    return true;
}

// When `offset` enumerates 0 .. count-1 exactly once as its variables run (a mixed radix number), binds
// those variables to the digits of `value`.
bool bind_digits(const Index& offset, const Dim& count, const Index& value, Binding& binding) {
    if (!(offset.constant() == Dim(0))) return false;
    std::vector<const Index::Part*> left;
    for (const Index::Part& part : offset.parts()) {
        if (part.term.kind != IndexTerm::Kind::var) return false;
        left.push_back(&part);
    }
    Dim radix = 1;
    while (!left.empty()) {
        const auto digit = std::find_if(left.begin(), left.end(),
                                        [&radix](const Index::Part* part) { return part->coefficient == radix; });
        if (digit == left.end()) return false;
        const IndexTerm& term = (*digit)->term;
        Index bound = floor_div(value, radix);
        radix = radix * term.extent;
        if (!(radix == count)) bound = mod(bound, term.extent);
        binding[static_cast<std::size_t>(term.var)] = bound;
        left.erase(digit);
    }
    return radix == count;
}

// When every axis of `at` is a variable of its own (or 0 on both sides), binds it to the entry of `values`. Preferred
// to digits of a flat offset: no quotients appear.
bool bind_axes(const Indices& at, const Indices& values, Binding& binding) {
    for (std::size_t axis = 0; axis < at.size(); ++axis) {
        if (at[axis] == Index(0) && values[axis] == Index(0)) continue;
        VarId var = -1;
        if (!is_plain_var(at[axis], var)) return false;
        auto& slot = binding[static_cast<std::size_t>(var)];
        if (slot) return false;
        slot = values[axis];
    }
    return true;
}

// True when `offset` takes each of the values 0 .. count-1 once.
bool reaches_all(const Index& offset, const Dim& count) {
    Binding ignored;
    for (const Index::Part& part : offset.parts()) {
        if (part.term.kind != IndexTerm::Kind::var) return false;
        ignored.resize(std::max(ignored.size(), static_cast<std::size_t>(part.term.var) + 1));
    }
    return bind_digits(offset, count, Index(0), ignored);
}

class Merger {
public:
    Merger(const MergeContext& context, Region& producer, Region& consumer, TensorRef tensor, OpId reader,
           const Request& request)
        : context_(context),
          producer_(producer),
          consumer_(consumer),
          tensor_(tensor),
          reader_(reader),
          request_(request) {}

    MergeResult run() {
        for (OpId op : {tensor_.op, reader_}) {
            if (context_.accesses[static_cast<std::size_t>(op)].library != Library::none) {
                return refuse(
                    concat("`", context_.graph.op(op).def->name, "` has kernels of its own, which nothing joins"));
            }
        }
        if (context_.accesses[static_cast<std::size_t>(tensor_.op)].scatter)
            return refuse("a scatter is done when the last update has been made");
        if (context_.accesses[static_cast<std::size_t>(tensor_.op)].is_sort)
            return refuse("a sort is done when the whole row has been looked at");
        if (request_.dynamic) return refuse("its elements are picked by a computed index");
        if (request_.guarded && producer_.has_reduce)
            return refuse("it is read only where a condition holds, and holds a reduction");
        if (producer_.members.size() + consumer_.members.size() >
            static_cast<std::size_t>(context_.options.max_members)) {
            return refuse(concat("the region would exceed ", context_.options.max_members, " operations"));
        }
        const Shape& shape = context_.graph.type(tensor_).shape;
        const Indices wanted = over_region(request_.at, consumer_.members.at(reader_));
        const Indices& home = producer_.members.at(tensor_.op).home;
        const Index wanted_offset = row_major_offset(shape, wanted);
        const Index home_offset = row_major_offset(shape, home);
        const Dim count = shape.num_elements();
        // A guarded request reaches beyond the tensor, or is used in some iterations only.
        const bool bijective = !request_.guarded && reaches_all(wanted_offset, count);
        overlapping_ = !bijective && overlaps(wanted, count);

        // The space with more variables is kept, since a digit of a flat index costs a division.
        const bool consumer_finer = wanted_offset.parts().size() > home_offset.parts().size();
        for (const bool keep_consumer : {consumer_finer, !consumer_finer}) {
            // A consumer that skips or repeats elements cannot be laid over the producer's space.
            if (!keep_consumer && !bijective) continue;
            if (!keep_consumer && has_own_loops()) continue;  // its loops are over variables of its own
            Region& kept = keep_consumer ? consumer_ : producer_;
            const Region& rewritten = keep_consumer ? producer_ : consumer_;
            Binding binding(rewritten.vars.size());
            if (!bind_axes(keep_consumer ? home : wanted, keep_consumer ? wanted : home, binding)) {
                binding.assign(rewritten.vars.size(), std::nullopt);
                if (!bind_digits(keep_consumer ? home_offset : wanted_offset, count,
                                 keep_consumer ? wanted_offset : home_offset, binding)) {
                    continue;
                }
            }
            return combine(kept, rewritten, std::move(binding), bijective);
        }
        return refuse("it is read in another order than it is computed in");
    }

private:
    bool has_own_loops() const { return context_.accesses[static_cast<std::size_t>(reader_)].has_own_loops(); }
    bool sorts() const { return context_.accesses[static_cast<std::size_t>(reader_)].is_sort; }
    MergeResult refuse(std::string reason) const { return {false, {}, std::move(reason)}; }

    MergeResult combine(Region& kept, const Region& rewritten, Binding binding, bool bijective) {
        Region merged;
        merged.vars = kept.vars;
        merged.has_reduce = producer_.has_reduce || consumer_.has_reduce;
        merged.has_contraction = producer_.has_contraction || consumer_.has_contraction;

        // Variables of `kept` that the shared tensor leaves free: candidates for those of `rewritten` that it leaves
        // free.
        std::vector<bool> taken(kept.vars.size(), false);
        for (const auto& bound : binding) {
            if (!bound) continue;
            std::vector<VarId> vars;
            bound->collect_vars(vars);
            for (VarId var : vars) taken[static_cast<std::size_t>(var)] = true;
        }
        bool grown = false;  // the merged space is larger than that of `kept`
        for (std::size_t v = 0; v < rewritten.vars.size(); ++v) {
            if (binding[v]) continue;
            const std::size_t partner = find_partner(kept, rewritten.vars[v], taken);
            if (partner < kept.vars.size()) {
                taken[partner] = true;
                binding[v] = Index::var(static_cast<VarId>(partner), kept.vars[partner].extent);
                continue;
            }
            if (kept.has_reduce && rewritten.vars[v].row) return refuse("the two reduce over different extents");
            binding[v] = Index::var(static_cast<VarId>(merged.vars.size()), rewritten.vars[v].extent);
            merged.vars.push_back({rewritten.vars[v].extent, false});
            taken.push_back(true);
            grown = grown || !rewritten.vars[v].row;
        }
        bool shrunk = false;  // `kept` has outer variables that `rewritten` lacks
        for (std::size_t v = 0; v < kept.vars.size(); ++v) shrunk = shrunk || (!taken[v] && !kept.vars[v].row);

        if (std::string reason = mark_rows(rewritten, binding, merged); !reason.empty()) return refuse(reason);

        producer_ops_ = operations_of(producer_);
        consumer_ops_ = operations_of(consumer_);
        // Moved, not copied: a long chain merges into the same region again and again.
        merged.members = std::move(kept.members);
        for (const auto& [op, member] : rewritten.members) merged.members.emplace(op, rewrite(member, binding));
        if (request_.guarded) {  // which rewrites the producer
            for (OpId op : producer_ops_) merged.members.at(op).partial = true;
        }
        const bool producer_is_kept = &kept == &producer_;
        std::string reason =
            check(merged, producer_is_kept ? grown : shrunk, producer_is_kept ? shrunk : grown, bijective);
        if (reason.empty()) return {true, std::move(merged), {}};
        for (const auto& [op, member] : rewritten.members) merged.members.erase(op);
        kept.members = std::move(merged.members);
        return refuse(std::move(reason));
    }

    std::string check(const Region& merged, bool producer_repeats, bool consumer_repeats, bool bijective) const {
        if (merged.has_reduce) {
            if (std::string reason = check_reductions(merged); !reason.empty()) return reason;
            if (std::string reason = check_scans(merged); !reason.empty()) return reason;
        }
        if (producer_.has_contraction && is_left_to_reduction()) {
            return concat("`", context_.graph.op(reader_).def->name,
                          "` leads to a reduction, which reads the product from memory as others do");
        }
        if (merged.has_contraction) {
            for (OpId op : producer_.has_contraction ? consumer_ops_ : producer_ops_) {
                const double cost = context_.accesses[static_cast<std::size_t>(op)].cost;
                if (cost <= max_cost_beside_contraction) continue;
                return concat("`", context_.graph.op(op).def->name, "` (cost ", cost,
                              ") gains from loops along memory, and a product in tiles has none");
            }
        }
        if (consumer_repeats) return "it is larger than what reads it, which would be computed many times";
        if (producer_repeats || !bijective || has_own_loops()) {
            // The base and the updates of a scatter have loops of their own: neither is repeated for the other. What is
            // sorted is read a few times.
            const bool repeats = (producer_repeats && !has_own_loops()) || overlapping_ || sorts();
            if (std::string reason = check_repetition(merged, repeats); !reason.empty()) return reason;
        }
        if (std::string reason = check_requests(merged); !reason.empty()) return reason;
        if (count_buffers(merged) > context_.options.max_buffers)
            return concat("the kernel would need more than ", context_.options.max_buffers, " buffers");
        return {};
    }

    // A product that is stored anyway is read back by a reduction, with what little is done to it on the way: beside
    // the product that would be stored as well.
    bool is_left_to_reduction() const {
        const auto at = [](OpId op) { return static_cast<std::size_t>(op); };
        if (!context_.required[at(tensor_.op)] && context_.readers[at(tensor_.op)].size() < 2) return false;
        double cost = 0;
        for (OpId op = reader_;; op = context_.readers[at(op)].front()) {
            const OpAccess& access = context_.accesses[at(op)];
            if (access.is_reduce) return !access.is_contraction();
            cost += access.cost;
            const bool is_passed_on = !context_.required[at(op)] && context_.readers[at(op)].size() == 1;
            if (!is_passed_on || access.has_own_loops() || cost > max_recompute_cost) return false;
        }
    }

    // Whether windows read elements several times, although each variable of the consumer has its part in the index.
    bool overlaps(const Indices& wanted, const Dim& count) const {
        std::vector<VarId> vars;
        for (const Index& index : wanted) index.collect_vars(vars);
        std::sort(vars.begin(), vars.end());
        vars.erase(std::unique(vars.begin(), vars.end()), vars.end());
        double reads = 1;
        for (VarId var : vars) {
            reads *=
                static_cast<double>(context_.options.estimate(consumer_.vars[static_cast<std::size_t>(var)].extent));
        }
        return reads > worth_counting_as_overlap * static_cast<double>(context_.options.estimate(count));
    }

    static std::vector<OpId> operations_of(const Region& region) {
        std::vector<OpId> operations;
        for (const auto& [op, member] : region.members) operations.push_back(op);
        return operations;
    }

    static std::size_t find_partner(const Region& kept, const RegionVar& wanted, const std::vector<bool>& taken) {
        for (std::size_t v = 0; v < kept.vars.size(); ++v) {
            if (!taken[v] && kept.vars[v].extent == wanted.extent) return v;
        }
        return kept.vars.size();
    }

    // A row variable must stay a loop of its own.
    static std::string mark_rows(const Region& rewritten, const Binding& binding, Region& merged) {
        for (std::size_t v = 0; v < rewritten.vars.size(); ++v) {
            if (!rewritten.vars[v].row) continue;
            VarId var = -1;
            if (!is_plain_var(*binding[v], var)) return "the reduction runs over part of a flattened axis";
            merged.vars[static_cast<std::size_t>(var)].row = true;
        }
        return {};
    }

    static Member rewrite(const Member& member, const Binding& binding) {
        const auto lookup = [&binding](VarId var, const Dim&) { return *binding[static_cast<std::size_t>(var)]; };
        Member result;
        result.partial = member.partial;
        for (const Index& index : member.own) result.own.push_back(index.substitute(lookup));
        for (const Index& index : member.home) result.home.push_back(index.substitute(lookup));
        return result;
    }

    // Every reduction runs over all row variables, once for each iteration of the others.
    std::string check_reductions(const Region& merged) const {
        const std::vector<VarId> rows = merged.row_vars();
        int reductions = 0;
        for (const auto& [op, member] : merged.members) {
            const OpAccess& access = context_.accesses[static_cast<std::size_t>(op)];
            // Or it would be stored as often as those axes have elements: many times, or never where there are none.
            if (!access.is_reduce && is_stored(merged, op) && depends_on_some(rows, member.home))
                return concat("`", context_.graph.op(op).def->name, "` lacks an axis that is reduced");
            if (!access.is_reduce) continue;
            // Tiles have room for the sums of one product; beside another it would be a plain loop.
            if (++reductions > 1 && merged.has_contraction)
                return "a product in tiles shares its kernel with no other reduction";
            std::vector<VarId> reduced;
            for (std::size_t v = static_cast<std::size_t>(access.num_out); v < member.own.size(); ++v) {
                VarId var = -1;
                if (!is_plain_var(member.own[v], var)) return "the reduction runs over part of a flattened axis";
                reduced.push_back(var);
            }
            std::sort(reduced.begin(), reduced.end());
            if (reduced != rows) return "the two reduce over different axes";
            if (merged.depends_on_row(member.home))
                return "a result of the reduction is indexed by the axis that is reduced";
            if (!covers_outer(merged, member.home))
                return "a reduction would be repeated for every element of a larger space";
        }
        return {};
    }

    // On one of the variables, and not on all of them.
    static bool depends_on_some(const std::vector<VarId>& vars, const Indices& at) {
        const auto used = [&at](VarId var) {
            return std::any_of(at.begin(), at.end(), [var](const Index& index) { return index.depends_on(var); });
        };
        return std::any_of(vars.begin(), vars.end(), used) && !std::all_of(vars.begin(), vars.end(), used);
    }

    // Scans run along the only row variable, all the same way, and nobody needs what they give when they are over.
    std::string check_scans(const Region& merged) const {
        const std::vector<VarId> rows = merged.row_vars();
        std::map<OpId, int> pass, scanned;  // in which pass each member is computed, and the scans that it is made of
        const OpAccess::Scan* first = nullptr;
        for (const auto& [op, member] : merged.members) {
            const OpAccess& access = context_.accesses[static_cast<std::size_t>(op)];
            int own = 0, of_scans = -1;
            for (const Request& request : access.requests) {
                const auto producer = pass.find(request.tensor.op);
                if (producer == pass.end()) continue;
                const bool reduced = context_.accesses[static_cast<std::size_t>(request.tensor.op)].is_reduce;
                own = std::max(own, producer->second + (reduced ? 1 : 0));
                if (!reduced) of_scans = std::max(of_scans, scanned.at(request.tensor.op));
            }
            pass[op] = own;
            if (of_scans >= 0 && of_scans != own) return "a cumulative operation would have to be done again";
            scanned[op] = access.scan ? own : of_scans;
            if (!access.scan) continue;
            if (merged.has_contraction) return "a product in tiles has no rows to walk along";
            VarId var = -1;
            if (!is_plain_var(member.own[static_cast<std::size_t>(access.scan->var)], var) ||
                rows != std::vector<VarId>{var})
                return "a cumulative operation runs along another axis";
            if (first != nullptr && first->reverse != access.scan->reverse)
                return "two cumulative operations run in opposite directions";
            if (!covers_outer(merged, member.home))
                return "a cumulative operation would be repeated for every element of a larger space";
            first = &*access.scan;
        }
        return {};
    }

    static bool covers_outer(const Region& merged, const Indices& home) {
        for (std::size_t v = 0; v < merged.vars.size(); ++v) {
            if (merged.vars[v].row) continue;
            const auto used = [v](const Index& index) { return index.depends_on(static_cast<VarId>(v)); };
            if (std::none_of(home.begin(), home.end(), used)) return false;
        }
        return true;
    }

    // The producer would be computed several times: it must be cheap and needed by nobody else.
    std::string check_repetition(const Region& merged, bool repeats) const {
        double cost = 0;
        for (OpId op : producer_ops_) {
            const auto index = static_cast<std::size_t>(op);
            if (context_.accesses[index].walks_row())
                return "a reduction would be repeated for every element of a larger space";
            if (context_.required[index]) return "it is needed as a whole, and is read in another shape or order";
            for (OpId reader : context_.readers[index]) {
                if (!merged.members.contains(reader))
                    return "others read it too, and it is read in another shape or order";
            }
            cost += context_.accesses[index].cost;
        }
        if (!repeats) return {};
        const double limit = consumer_.has_contraction ? max_contraction_prologue_cost : max_recompute_cost;
        if (cost > limit) {
            return concat("it is used many times and computing it again (cost ", cost,
                          ") is dearer than reading it back");
        }
        return {};
    }

    // Inside the region each tensor is asked for where it is computed, or is cheap to compute elsewhere too.
    std::string check_requests(const Region& merged) const {
        const auto check = [&](OpId reader) -> std::string {
            const Member& member = merged.members.at(reader);
            for (const Request& request : context_.accesses[static_cast<std::size_t>(reader)].requests) {
                const auto producer = merged.members.find(request.tensor.op);
                if (producer == merged.members.end()) continue;
                if (request.dynamic) return "its elements are picked by a computed index";
                if (over_region(request.at, member) == producer->second.home) continue;
                const std::optional<double> again = recompute_cost(merged, request.tensor.op);
                if (!again) return "it is read at two different places, and holds a reduction";
                if (*again > max_recompute_cost) {
                    return concat("it is read at two different places and computing it twice (cost ", *again,
                                  ") is dearer than reading it back");
                }
            }
            return {};
        };
        // Only requests across the seam are new.
        for (OpId op : consumer_ops_) {
            if (std::string reason = check(op); !reason.empty()) return reason;
        }
        return {};
    }

    // Arithmetic of the whole chain inside the region; none when it contains a reduction.
    std::optional<double> recompute_cost(const Region& merged, OpId op) const {
        std::vector<OpId> stack{op};
        std::set<OpId> seen;
        double cost = 0;
        while (!stack.empty()) {
            const OpId current = stack.back();
            stack.pop_back();
            if (!merged.members.contains(current) || !seen.insert(current).second) continue;
            const OpAccess& access = context_.accesses[static_cast<std::size_t>(current)];
            if (access.walks_row()) return std::nullopt;
            cost += access.cost;
            if (cost > max_recompute_cost) return cost;
            for (const Request& request : access.requests) stack.push_back(request.tensor.op);
        }
        return cost;
    }

    bool is_stored(const Region& merged, OpId op) const {
        const auto index = static_cast<std::size_t>(op);
        const auto outside = [&merged](OpId reader) { return !merged.members.contains(reader); };
        const auto& readers = context_.readers[index];
        return context_.required[index] || std::any_of(readers.begin(), readers.end(), outside);
    }

    int count_buffers(const Region& merged) const {
        std::set<TensorRef> buffers;
        for (const auto& [op, member] : merged.members) {
            for (const Request& request : context_.accesses[static_cast<std::size_t>(op)].requests) {
                if (!merged.members.contains(request.tensor.op)) buffers.insert(request.tensor);
            }
            if (is_stored(merged, op)) buffers.insert({op, 0});
        }
        return static_cast<int>(buffers.size());
    }

    const MergeContext& context_;
    Region& producer_;
    Region& consumer_;
    std::vector<OpId> producer_ops_, consumer_ops_;
    bool overlapping_ = false;
    TensorRef tensor_;
    OpId reader_;
    const Request& request_;
};

}  // namespace

std::vector<loopir::VarId> Region::row_vars() const {
    std::vector<VarId> rows;
    for (std::size_t v = 0; v < vars.size(); ++v) {
        if (vars[v].row) rows.push_back(static_cast<VarId>(v));
    }
    return rows;
}

bool Region::depends_on_row(const Indices& at) const {
    for (VarId row : row_vars()) {
        if (std::any_of(at.begin(), at.end(), [row](const Index& index) { return index.depends_on(row); })) return true;
    }
    return false;
}

Index over_region(const Index& index, const Member& member) {
    return index.substitute([&member](VarId var, const Dim&) { return member.own[static_cast<std::size_t>(var)]; });
}

Indices over_region(const Indices& at, const Member& member) {
    Indices result;
    result.reserve(at.size());
    for (const Index& index : at) result.push_back(over_region(index, member));
    return result;
}

Region single(const OpAccess& access, OpId op) {
    Region region;
    Member member;
    for (std::size_t v = 0; v < access.vars.size(); ++v) {
        const bool row =
            static_cast<int>(v) >= access.num_out || (access.scan && access.scan->var == static_cast<VarId>(v));
        region.vars.push_back({access.vars[v], row});
        member.own.push_back(Index::var(static_cast<VarId>(v), access.vars[v]));
    }
    member.home = access.home;
    region.members.emplace(op, std::move(member));
    region.has_reduce = access.walks_row();
    region.has_contraction = access.is_contraction();
    return region;
}

MergeResult merge(const MergeContext& context, Region& producer, Region& consumer, TensorRef tensor, OpId reader,
                  const Request& request) {
    return Merger(context, producer, consumer, tensor, reader, request).run();
}

}  // namespace topstitch::stitch
