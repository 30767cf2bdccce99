// Chooses the schedule of a region from its buffer accesses and the machine.
// See schedule.h for what a schedule says.
#include "stitch/schedule.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

namespace topstitch::stitch {

namespace {

using loopir::IndexTerm;
using loopir::VarId;

constexpr int rows_by_one_vector = 4;
constexpr int rows_side_by_side = 4;
constexpr std::int64_t min_lanes = 8;             // of an axis in lanes
constexpr std::int64_t min_contiguous_lanes = 4;  // of one along which memory is read or written in one go
constexpr int worth_few_lanes = 4;                // by so much such an axis must have the better score
constexpr double max_cost_down_rows = 20;         // of sums in lanes, to take many vectors of a row
constexpr std::size_t max_pieces = 8;             // of the innermost loop
constexpr std::int64_t min_piece_vectors = 4;     // shorter ones are left in the loop
constexpr int split_chunks = 32;
constexpr std::int64_t max_repeats = 8;              // vectors that run together to share what repeats
constexpr double max_cost_together = 1500;           // of those: the code is written out for each
constexpr std::int64_t min_split_rows = 1 << 15;     // shorter reductions are not worth a second kernel
constexpr std::int64_t few_results = 1 << 14;        // of a product that is not packed
constexpr std::int64_t min_split_steps = 1 << 11;    // of which each has so many
constexpr std::int64_t min_product_side = 8;         // fewer results along an axis are no side of a matrix
constexpr std::int64_t min_parallel_vectors = 4096;  // elements of a vector loop worth sharing among threads

// Iterations of the lanes that read across memory before the next lines are begun: as many lines, and pages, are in
// use. A multiple of every number of lanes, for squares that are turned in registers.
constexpr std::int64_t crossing_block = 32;
constexpr std::int64_t min_crossing_step = 64;  // elements; nearer ones share pages

// Two variables that are walked as one, which counts through both: first * inner + second. It takes the number of the
// first.
struct Walk {
    VarId first;
    VarId second;
    Dim outer;
    Dim inner;

    // The index as a function of that one; nothing when it depends on the two in another way.
    std::optional<Index> over_one(const Index& index) const {
        const Index one = Index::var(first, outer * inner);
        const Index result = index.substitute([&](VarId var, const Dim& extent) {
            if (var == first) return Index(0);
            return var == second ? one : Index::var(var, extent);
        });
        const Index both = Index::var(first, outer) * inner + Index::var(second, inner);
        const Index again = result.substitute(
            [&](VarId var, const Dim& extent) { return var == first ? both : Index::var(var, extent); });
        return again == index ? std::optional(result) : std::nullopt;
    }
};

// In how many iterations in a row the index repeats its values, as v // 64 * 16 + v % 16 does in 64: four iterations
// have each of 16 values. Run together, they share what is computed from it. 1: it does not repeat.
std::int64_t span_of_repeats(const Index& index, VarId var) {
    std::int64_t longest = 1;
    for (const Index::Part& digit : index.parts()) {
        if (digit.term.kind != IndexTerm::Kind::mod || !digit.term.inner->depends_on(var)) continue;
        for (const Index::Part& group : index.parts()) {
            if (group.term.kind != IndexTerm::Kind::floor_div || !(*group.term.inner == *digit.term.inner)) continue;
            const Dim &period = digit.term.extent, &span = group.term.extent;
            if (!period.is_known() || !span.is_known() || group.coefficient != digit.coefficient * period) continue;
            if (span.value() > period.value()) longest = std::max(longest, span.value());
        }
    }
    return longest;
}

// A loop to be: one region variable, or several that are walked as one.
struct Axis {
    Dim extent;
    bool row = false;
};

class Scheduler {
public:
    Scheduler(const Program& program, const Partition& partition, const Region& region, const StitchOptions& options,
              const Machine& machine)
        : program_(program),
          partition_(partition),
          region_(region),
          options_(options),
          machine_(machine),
          accesses_(buffer_accesses(program, partition, region)) {
        for (std::size_t v = 0; v < region.vars.size(); ++v) {
            axes_.push_back({region.vars[v].extent, region.vars[v].row});
            region_vars_.push_back(Index::var(static_cast<VarId>(v), region.vars[v].extent));
        }
        for (const auto& [op, member] : region.members) {
            for (const Index& use : partition.accesses[static_cast<std::size_t>(op)].index_uses) {
                index_uses_.push_back(over_region(use, member));
            }
        }
    }

    Schedule run() {
        sort_axes();
        while (collapse_one()) {}
        int vector = choose_vector();
        const bool in_order = has_scan([](const OpAccess::Scan& scan) { return !scan.associative; });
        if (in_order && vector >= 0 && axes_[static_cast<std::size_t>(vector)].row) vector = -1;
        Schedule schedule = arrange(vector);
        choose_unrolls(schedule, vector);
        choose_cuts(schedule, vector);
        schedule.scans = has_scan([](const OpAccess::Scan&) { return true; });
        schedule.streaming = worth_streaming();
        schedule.row_bytes = machine_.row_bytes;
        if (!machine_.packs_products) return schedule;
        schedule.tiling = choose_tiling(program_, partition_, region_, options_, machine_);
        if (schedule.tiling) schedule.chunks = 0;
        return schedule;
    }

private:
    template <typename Predicate>
    bool has_scan(Predicate predicate) const {
        return std::any_of(region_.members.begin(), region_.members.end(), [&](const auto& entry) {
            const OpAccess& access = partition_.accesses[static_cast<std::size_t>(entry.first)];
            return access.scan && predicate(*access.scan);
        });
    }
    std::int64_t estimate(const Dim& dim) const { return options_.estimate(dim); }

    // Renumbers axes: entry k of `order` is the old number of new axis k.
    void permute(const std::vector<std::size_t>& order) {
        std::vector<Axis> axes;
        std::vector<Index> fresh(axes_.size());
        for (std::size_t k = 0; k < order.size(); ++k) {
            axes.push_back(axes_[order[k]]);
            fresh[order[k]] = Index::var(static_cast<VarId>(k), axes_[order[k]].extent);
        }
        axes_ = std::move(axes);
        substitute(fresh);
    }

    static Index substituted(const Index& index, const std::vector<Index>& fresh) {
        return index.substitute([&fresh](VarId var, const Dim&) { return fresh[static_cast<std::size_t>(var)]; });
    }
    static std::vector<Index> substituted(std::vector<Index> indices, const std::vector<Index>& fresh) {
        for (Index& index : indices) index = substituted(index, fresh);
        return indices;
    }

    void substitute(const std::vector<Index>& fresh) {
        region_vars_ = substituted(std::move(region_vars_), fresh);
        for (RegionAccess& access : accesses_) access.offset = substituted(access.offset, fresh);
        index_uses_ = substituted(std::move(index_uses_), fresh);
    }

    // Outer axes before row axes; within each, large strides of the main access first.
    void sort_axes() {
        std::vector<std::size_t> order(axes_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto stride = [this](std::size_t axis) {
            // The store decides for outer axes, the largest load for row axes.
            const RegionAccess* main = nullptr;
            std::int64_t best = -1;
            for (const RegionAccess& access : accesses_) {
                if (!access.offset.depends_on(static_cast<VarId>(axis))) continue;
                const std::int64_t size = estimate(program_.graph->type(access.tensor).shape.num_elements()) +
                                          (access.store && !axes_[axis].row ? std::int64_t{1} << 60 : 0);
                if (size > best) {
                    best = size;
                    main = &access;
                }
            }
            if (main == nullptr) return std::int64_t{0};
            const Dim coefficient = main->offset.coefficient_of(static_cast<VarId>(axis));
            return coefficient.is_unknown() ? std::int64_t{0} : std::abs(estimate(coefficient));
        };
        std::vector<std::int64_t> strides;
        for (std::size_t axis = 0; axis < axes_.size(); ++axis) strides.push_back(stride(axis));
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return std::pair(axes_[a].row, -strides[a]) < std::pair(axes_[b].row, -strides[b]);
        });
        permute(order);
    }

    // Walks two neighbouring axes as one where no access and no use of an index as a number minds.
    bool collapse_one() {
        for (std::size_t a = 0; a + 1 < axes_.size(); ++a) {
            if (axes_[a].row != axes_[a + 1].row) continue;
            const auto first = static_cast<VarId>(a);
            const auto second = static_cast<VarId>(a + 1);
            const Dim inner = axes_[a + 1].extent;
            const Walk walk{first, second, axes_[a].extent, inner};
            std::vector<Index> uses;
            for (const Index& use : index_uses_) {
                if (std::optional<Index> over_one = walk.over_one(use)) uses.push_back(*std::move(over_one));
            }
            if (uses.size() < index_uses_.size()) continue;
            const bool uniform = std::all_of(accesses_.begin(), accesses_.end(), [&](const RegionAccess& access) {
                const Dim outer_step = access.offset.coefficient_of(first);
                const Dim inner_step = access.offset.coefficient_of(second);
                return !outer_step.is_unknown() && !inner_step.is_unknown() && outer_step == inner_step * inner;
            });
            if (!uniform) continue;
            const Dim extent = axes_[a].extent * inner;
            std::vector<Index> fresh;
            for (std::size_t k = 0; k < axes_.size(); ++k) {
                const auto shifted = static_cast<VarId>(k <= a ? k : k - 1);
                if (k == a || k == a + 1) {
                    const Index joined = Index::var(first, extent);
                    fresh.push_back(k == a ? floor_div(joined, inner) : mod(joined, inner));
                } else {
                    fresh.push_back(Index::var(shifted, axes_[k].extent));
                }
            }
            axes_[a].extent = extent;
            axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(a) + 1);
            substitute(fresh);
            fresh[a] = Index::var(first, extent);
            index_uses_ = substituted(uses, fresh);
            return true;
        }
        return false;
    }

    // How well axis `a` suits lanes: contiguous accesses count for it, scattered ones against.
    int lane_score(std::size_t a) const {
        int score = 0;
        for (const RegionAccess& access : accesses_) {
            const Dim step = access.offset.coefficient_of(static_cast<VarId>(a));
            const bool varies = access.offset.depends_on(static_cast<VarId>(a));
            if (step == Dim(1)) {
                score += access.store ? 3 : 2;
            } else if (!varies) {
                score += access.store ? 0 : 1;
            } else {
                score -= 2;
            }
        }
        return score;
    }

    // A short axis fills few lanes, which is still better than to read and write one by one what lies apart.
    int choose_vector() const {
        const auto best_of = [this](std::int64_t least, std::int64_t most) {
            int best = -1;
            for (std::size_t a = 0; a < axes_.size(); ++a) {
                const std::int64_t extent = estimate(axes_[a].extent);
                if (extent < least || extent > most) continue;
                if (best < 0 || lane_score(a) >= lane_score(static_cast<std::size_t>(best))) best = static_cast<int>(a);
            }
            return best;
        };
        const int any = best_of(min_lanes, std::numeric_limits<std::int64_t>::max());
        if (any < 0) return best_of(0, min_lanes);
        const int brief = best_of(min_contiguous_lanes, min_lanes - 1);
        const auto score = [this](int a) { return lane_score(static_cast<std::size_t>(a)); };
        return brief >= 0 && score(brief) >= score(any) + worth_few_lanes ? brief : any;
    }

    // The outer axis whose iterations share an operand of a contraction, for register tiles; -1 when there is none.
    int choose_tiled(int vector) const {
        if (!region_.has_contraction || vector < 0 || axes_[static_cast<std::size_t>(vector)].row) return -1;
        int best = -1;
        for (std::size_t a = 0; a < axes_.size(); ++a) {
            if (static_cast<int>(a) == vector || axes_[a].row || estimate(axes_[a].extent) < tile_rows()) continue;
            const bool shares = std::any_of(accesses_.begin(), accesses_.end(), [&](const RegionAccess& access) {
                return !access.store && !access.offset.depends_on(static_cast<VarId>(a)) &&
                       access.offset.coefficient_of(static_cast<VarId>(vector)) == Dim(1);
            });
            // Of equals, the one along which memory is read in shorter steps.
            if (shares &&
                (best < 0 || estimate(axes_[a].extent) >= estimate(axes_[static_cast<std::size_t>(best)].extent))) {
                best = static_cast<int>(a);
            }
        }
        return best;
    }

    // The outer axis along which a load is contiguous that takes long steps along the lanes, as in a transposition: -1
    // when there is none. What the lanes read is soon read again there, if it is still in the cache.
    int choose_crossing(int vector) const {
        if (region_.has_reduce || vector < 0) return -1;
        if (estimate(axes_[static_cast<std::size_t>(vector)].extent) <= crossing_block) return -1;
        for (const RegionAccess& access : accesses_) {
            const Dim step = access.offset.coefficient_of(static_cast<VarId>(vector));
            if (access.store || step.is_unknown() || std::abs(estimate(step)) < min_crossing_step) continue;
            for (std::size_t a = 0; a < axes_.size(); ++a) {
                const Dim along = access.offset.coefficient_of(static_cast<VarId>(a));
                const bool contiguous = along == Dim(1) || along == Dim(-1);
                if (contiguous && estimate(axes_[a].extent) > crossing_block) return static_cast<int>(a);
            }
        }
        return -1;
    }

    int tile_rows() const { return machine_.vector_registers >= 32 ? 8 : 6; }

    Schedule arrange(int vector) const {
        Schedule schedule;
        std::vector<std::size_t> outer, rows;
        for (std::size_t a = 0; a < axes_.size(); ++a) (axes_[a].row ? rows : outer).push_back(a);
        const bool vector_outer = vector >= 0 && !axes_[static_cast<std::size_t>(vector)].row;
        const int tiled = choose_tiled(vector);

        std::vector<std::size_t> rest;  // outer axes that are neither in lanes nor tiled
        for (std::size_t a : outer) {
            if (static_cast<int>(a) != vector && static_cast<int>(a) != tiled) rest.push_back(a);
        }
        std::int64_t rest_count = 1;
        for (std::size_t a : rest) rest_count *= std::max<std::int64_t>(estimate(axes_[a].extent), 1);

        std::vector<Index> axis_index(axes_.size());  // each axis over the loops
        const auto add_loop = [&](std::vector<LoopSpec>& loops, LoopSpec spec) {
            spec.name = concat(&loops == &schedule.rows ? 'r' : 'i', loops.size());
            loops.push_back(spec);
            return Index::var(static_cast<VarId>(schedule.outer.size() + schedule.rows.size() - 1), spec.extent);
        };
        const auto add_axis = [&](std::vector<LoopSpec>& loops, std::size_t a, bool parallel, int unroll = 1) {
            axis_index[a] = add_loop(loops, {"", axes_[a].extent, parallel, static_cast<int>(a) == vector, unroll});
        };
        // Several walked as one parallel loop, its digits recovered by division (once for many elements).
        const auto add_digits = [&](const std::vector<Dim>& extents) {
            Dim extent = 1;
            for (const Dim& digit : extents) extent = extent * digit;
            Index left = add_loop(schedule.outer, {"", extent, true});
            std::vector<Index> digits(extents.size());
            for (std::size_t k = extents.size(); k-- > 0;) {
                digits[k] = k == 0 ? left : mod(left, extents[k]);
                left = floor_div(left, extents[k]);
            }
            return digits;
        };
        const auto add_flattened = [&](const std::vector<std::size_t>& axes) {
            std::vector<Dim> extents;
            for (std::size_t a : axes) extents.push_back(axes_[a].extent);
            const std::vector<Index> digits = add_digits(extents);
            for (std::size_t k = 0; k < axes.size(); ++k) axis_index[axes[k]] = digits[k];
        };
        // Squares of lanes by positions of `crossing`.
        const auto add_blocks = [&](std::size_t lanes, std::size_t crossing) {
            std::erase(rest, crossing);
            std::vector<Dim> extents;
            for (std::size_t a : rest) extents.push_back(axes_[a].extent);
            for (const std::size_t a : {lanes, crossing}) extents.push_back(ceil_div(axes_[a].extent, crossing_block));
            const std::vector<Index> digits = add_digits(extents);
            for (std::size_t k = 0; k < rest.size(); ++k) axis_index[rest[k]] = digits[k];
            const auto add_block = [&](std::size_t a, const Index& number, bool vector) {
                const Dim& extent = axes_[a].extent;
                const Index first = number * Dim(crossing_block);
                LoopSpec spec{"", Dim(crossing_block), false, vector};
                const bool whole = extent.is_known() && extent.value() % crossing_block == 0;
                if (!whole) spec.limit = Index(extent) - first;
                axis_index[a] = first + add_loop(schedule.outer, spec);
            };
            add_block(crossing, digits.back(), false);
            add_block(lanes, digits[rest.size()], true);
        };

        if (region_.has_contraction && !machine_.packs_products) {
            // Whoever makes tiles of them sees which axes are rows and which are columns.
            for (std::size_t a : outer) {
                if (static_cast<int>(a) != vector) add_axis(schedule.outer, a, schedule.outer.empty());
            }
            if (vector_outer) { add_axis(schedule.outer, static_cast<std::size_t>(vector), schedule.outer.empty()); }
        } else if (tiled >= 0) {
            const bool many = rest_count >= 2 * machine_.threads;
            if (many) add_flattened(rest);
            add_axis(schedule.outer, static_cast<std::size_t>(tiled), !many, tile_rows());
            if (!many) {
                for (std::size_t a : rest) add_axis(schedule.outer, a, false);
            }
            add_axis(schedule.outer, static_cast<std::size_t>(vector), false);
        } else if (rest.empty()) {
            if (vector_outer) add_axis(schedule.outer, static_cast<std::size_t>(vector), true);
        } else if (vector_outer && rest_count < 2 * machine_.threads &&
                   estimate(axes_[static_cast<std::size_t>(vector)].extent) >= min_parallel_vectors) {
            add_axis(schedule.outer, static_cast<std::size_t>(vector), true);
            for (std::size_t a : rest) add_axis(schedule.outer, a, false);
        } else if (const int crossing = vector_outer ? choose_crossing(vector) : -1; crossing >= 0) {
            add_blocks(static_cast<std::size_t>(vector), static_cast<std::size_t>(crossing));
        } else {
            add_flattened(rest);
            if (vector_outer) add_axis(schedule.outer, static_cast<std::size_t>(vector), false);
        }
        // Lanes go innermost among the row loops.
        for (std::size_t a : rows) {
            if (static_cast<int>(a) != vector) add_axis(schedule.rows, a, false);
        }
        if (vector >= 0 && !vector_outer) add_axis(schedule.rows, static_cast<std::size_t>(vector), false);

        const auto lookup = [&axis_index](VarId var, const Dim&) { return axis_index[static_cast<std::size_t>(var)]; };
        for (const Index& index : region_vars_) schedule.region_vars.push_back(index.substitute(lookup));
        schedule.chunks = choose_chunks(schedule);
        return schedule;
    }

    int choose_chunks(const Schedule& schedule) const {
        if (!region_.has_reduce || schedule.rows.empty() || count_passes(partition_, region_) > 1) return 0;
        // A chunk of a scan goes on from what the others come to: one total for each, found without those of others.
        int walked = 0;
        for (const auto& [op, member] : region_.members) {
            walked += partition_.accesses[static_cast<std::size_t>(op)].walks_row() ? 1 : 0;
        }
        const bool scans = has_scan([](const OpAccess::Scan&) { return true; });
        if (scans && (walked > 1 || has_scan([](const OpAccess::Scan& scan) { return !scan.associative; }))) return 0;
        std::int64_t outer = 1, rows = 1;
        for (const LoopSpec& loop : schedule.outer) {
            const std::int64_t extent = estimate(loop.extent);
            outer *= std::max<std::int64_t>(loop.vector ? extent / 64 : extent, 1);
        }
        for (const LoopSpec& loop : schedule.rows) rows *= std::max<std::int64_t>(estimate(loop.extent), 1);
        if (region_.has_contraction && !machine_.packs_products && outer >= 8) return product_chunks(schedule, rows);
        const bool splittable = estimate(schedule.rows.front().extent) >= 4 * split_chunks;
        return outer < 8 && rows >= min_split_rows && splittable ? split_chunks : 0;
    }

    // A matrix of few results over many steps is a few tiles only, however long these take: the steps are shared out.
    int product_chunks(const Schedule& schedule, std::int64_t steps) const {
        std::int64_t results = 1;
        int sides = 0;
        for (const LoopSpec& loop : schedule.outer) {
            results *= std::max<std::int64_t>(estimate(loop.extent), 1);
            if (estimate(loop.extent) >= min_product_side) ++sides;
        }
        if (sides < 2 || results > few_results || steps < min_split_steps) return 0;
        const Dim& first = schedule.rows.front().extent;
        // In equal chunks: what they leave over is added up by one thread for each result.
        if (!first.is_known()) return estimate(first) >= 4 * split_chunks ? split_chunks : 0;
        for (int chunks = split_chunks; chunks > 1; --chunks) {
            if (first.value() % chunks == 0) return chunks;
        }
        return 0;
    }

    // Independent accumulators hide the latency of an addition; long bodies fill the pipeline by themselves.
    void choose_unrolls(Schedule& schedule, int vector) const {
        const double cost = cost_of(partition_, region_);
        std::int64_t span = 1;
        for (const Index& use : index_uses_) span = std::max(span, span_of_repeats(use, static_cast<VarId>(vector)));
        const std::int64_t lanes = machine_.vector_bytes / static_cast<int>(sizeof(float));
        int repeats = static_cast<int>(std::clamp<std::int64_t>(span / lanes, 1, max_repeats));
        while (repeats > 1 && repeats * cost > max_cost_together) repeats /= 2;
        const auto choose = [&](LoopSpec& loop, bool row) {
            if (!loop.vector) return;
            if (region_.has_contraction && !row) {
                loop.unroll = 2;
            } else if (row && region_.has_reduce) {
                loop.unroll = cost < 40 ? 4 : 2;
            } else {
                loop.unroll = std::max(unroll_for(cost), repeats);
                if (region_.has_reduce) loop.unroll = std::max(loop.unroll, vectors_down_rows(loop, cost));
            }
        };
        for (LoopSpec& loop : schedule.outer) choose(loop, false);
        for (LoopSpec& loop : schedule.rows) choose(loop, true);
        // Rows side by side hide the latency of a scan that has no lanes.
        const bool scalar = vector < 0 && !schedule.rows.empty() && !schedule.outer.empty();
        if (scalar && has_scan([](const OpAccess::Scan&) { return true; }))
            schedule.outer.back().unroll = rows_side_by_side;
        // Rows of a matrix by one vector: some rows side by side share what is read of the vector.
        const bool in_rows = !schedule.rows.empty() && schedule.rows.back().vector;
        if (region_.has_contraction && in_rows && !schedule.outer.empty()) {
            schedule.outer.back().unroll = rows_by_one_vector;
            schedule.rows.back().unroll = 2;
        }
    }

    // Where an index that is compared with others passes zero, another part of a concatenation or of a padded tensor
    // begins. In pieces from cut to cut, guards are decided when the kernel is written.
    void choose_cuts(Schedule& schedule, int vector) const {
        if (!schedule.rows.empty() || schedule.outer.size() < 2 || vector < 0) return;
        LoopSpec& loop = schedule.outer.back();
        if (!loop.vector || loop.parallel || loop.limit || !loop.extent.is_known()) return;
        const auto var = static_cast<VarId>(vector);
        std::set<std::int64_t> cuts;
        for (const Index& use : index_uses_) {
            const Index rest = use - Index::var(var, axes_[static_cast<std::size_t>(vector)].extent);
            if (rest.is_constant() && rest.constant().is_known()) cuts.insert(-rest.constant().value());
        }
        cuts.erase(cuts.begin(), cuts.upper_bound(0));
        cuts.erase(cuts.lower_bound(loop.extent.value()), cuts.end());
        const std::int64_t lanes = machine_.vector_bytes / static_cast<int>(sizeof(float));
        std::int64_t previous = 0, shortest = loop.extent.value();
        for (const std::int64_t cut : cuts) {
            shortest = std::min(shortest, cut - previous);
            previous = cut;
        }
        shortest = std::min(shortest, loop.extent.value() - previous);
        if (cuts.size() < max_pieces && shortest >= min_piece_vectors * lanes)
            loop.cuts.assign(cuts.begin(), cuts.end());
    }

    // Sums in lanes step from row to row of memory: the more of each row they take at once, the longer it is read in
    // one go. Every thread gets a part.
    int vectors_down_rows(const LoopSpec& loop, double cost) const {
        if (cost >= max_cost_down_rows) return 1;
        const std::int64_t lanes = machine_.vector_bytes / static_cast<int>(sizeof(float));
        const std::int64_t shares = estimate(loop.extent) / (lanes * machine_.threads);
        return static_cast<int>(std::min<std::int64_t>(machine_.vector_registers / 2, shares));
    }

    // Only when the size is certain: an executable for any size must not bypass the caches for small ones.
    bool worth_streaming() const {
        std::int64_t bytes = 0;
        for (OpId op : region_.outputs) {
            const TensorType& type = program_.graph->type({op, 0});
            const Dim count = type.shape.num_elements();
            if (!count.is_known()) return false;
            bytes = std::max(bytes, count.value() * static_cast<std::int64_t>(size_of(type.dtype)));
        }
        return bytes > machine_.l3_bytes;
    }

    const Program& program_;
    const Partition& partition_;
    const Region& region_;
    const StitchOptions& options_;
    const Machine& machine_;
    std::vector<RegionAccess> accesses_;
    std::vector<Index> index_uses_;
    std::vector<Axis> axes_;
    std::vector<Index> region_vars_;
};

}  // namespace

std::vector<RegionAccess> buffer_accesses(const Program& program, const Partition& partition, const Region& region) {
    std::vector<RegionAccess> accesses;
    for (const auto& [op, member] : region.members) {
        for (const Request& request : partition.accesses[static_cast<std::size_t>(op)].requests) {
            if (region.members.contains(request.tensor.op) || is_scalar_constant(*program.graph, request.tensor))
                continue;
            accesses.push_back(
                {request.tensor, memory_offset(program, request.tensor, over_region(request.at, member)), false});
        }
    }
    for (OpId op : region.outputs) {
        accesses.push_back({{op, 0}, memory_offset(program, {op, 0}, region.members.at(op).home), true});
    }
    return accesses;
}

double cost_of(const Partition& partition, const Region& region) {
    double cost = 0;
    for (const auto& [op, member] : region.members) cost += partition.accesses[static_cast<std::size_t>(op)].cost;
    return cost;
}

int unroll_for(double cost) {
    return cost < 20 ? 4 : 2;
}

Schedule choose_schedule(const Program& program, const Partition& partition, const Region& region,
                         const StitchOptions& options, const Machine& machine) {
    const OpId last = region.members.rbegin()->first;
    if (partition.accesses[static_cast<std::size_t>(last)].library != Library::none) {
        Schedule schedule;
        schedule.attention = choose_attention_tiling(program, last, options, machine);
        return schedule;
    }
    if (const OpAccess& access = partition.accesses[static_cast<std::size_t>(last)]; access.scatter) {
        Schedule schedule;
        schedule.scatter = choose_scatter_cut(program, access, last, options, machine);
        return schedule;
    }
    if (partition.accesses[static_cast<std::size_t>(last)].is_sort) {
        Schedule schedule;
        schedule.sort = choose_sort(program, last, options, machine);
        return schedule;
    }
    return Scheduler(program, partition, region, options, machine).run();
}

std::string Schedule::str() const {
    std::string text;
    const auto add = [&text](const LoopSpec& loop) {
        if (!text.empty()) text += " > ";
        if (loop.parallel) text += "parallel ";
        if (loop.vector) text += "vector ";
        text += concat(loop.name, "(", loop.extent.str(), ")");
        if (loop.unroll > 1) text += concat(" x", loop.unroll);
        if (!loop.cuts.empty()) text += concat(" in ", loop.cuts.size() + 1, " pieces");
    };
    for (const LoopSpec& loop : outer) add(loop);
    for (const LoopSpec& loop : rows) add(loop);
    if (chunks > 0) text += concat(", reduction in ", chunks, " chunks");
    if (streaming) text += ", streaming stores";
    return text.empty() ? "once" : text;
}

}  // namespace topstitch::stitch
