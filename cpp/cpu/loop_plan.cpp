// Chooses vector widths and copies, and finds out what each loop carries and which locals are private to lanes.
// A schedule that cannot be honoured (a local that one iteration leaves to the next) falls back to a plain loop.
#include "cpu/loop_plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/short_list.h"
#include "loopir/contract.h"

namespace topstitch::cpu {

using loopir::Block;
using loopir::Index;
using loopir::Instr;
using loopir::Kernel;
using loopir::Let;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::ValueId;
using loopir::VarId;

namespace {

// Copies of all enclosing loops together: more than the registers of any target.
constexpr int most_copies = 32;
constexpr int repeats = 4;
// Of the loops around a loop whose iterations are repeated. Panels that fill the registers have work enough in each
// step, and what neighbouring steps of a window share would be kept in registers that they do not have.
constexpr int most_copies_repeated = 8;
// Few iterations, whose end would be predicted badly, are written out where panels leave so many registers.
constexpr int spare_registers = 8;
constexpr std::size_t most_crossing = 16;  // values in the body of a loop whose iterations cross lanes
constexpr std::size_t most_repeated = 8;   // values in the body of a loop whose iterations are repeated

// What happens anywhere inside one loop.
struct LoopContents {
    std::vector<int> initialised;
    std::vector<int> accumulated;
    std::vector<ValueId> values;
    std::vector<const loopir::Store*> stores;
    std::vector<int> locals_touched;
    std::vector<const Index*> limits;  // of loops
    bool multiplies_tiles = false;
};

void merge(LoopContents& into, const LoopContents& from) {
    const auto append = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
    append(into.initialised, from.initialised);
    append(into.accumulated, from.accumulated);
    append(into.values, from.values);
    append(into.stores, from.stores);
    append(into.locals_touched, from.locals_touched);
    append(into.limits, from.limits);
    into.multiplies_tiles |= from.multiplies_tiles;
}

}  // namespace

class LoopAnalysis {
public:
    LoopAnalysis(LoopPlan& plan, const Kernel& kernel, const TargetInfo& target)
        : plan_(plan), kernel_(kernel), target_(target) {
        depends_.resize(kernel.instrs.size());
        index_like_.resize(kernel.instrs.size(), false);
        root_ = visit(kernel.body);
        for (std::size_t b = 0; b < kernel.buffers.size(); ++b) {
            if (kernel.buffers[b].role == loopir::BufferParam::Role::local) {
                plan_.locals_.push_back({static_cast<int>(b), 1, {}});
            }
        }
        for (const Stmt& stmt : kernel.body.stmts) {
            if (const auto* loop = std::get_if<Loop>(&stmt)) shape_loops(*loop);
        }
        fuse_sums();
    }

private:
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    bool is_local(int buffer) const {
        return kernel_.buffers[static_cast<std::size_t>(buffer)].role == loopir::BufferParam::Role::local;
    }
    bool depends(ValueId id, VarId var) const { return contains(depends_[static_cast<std::size_t>(id)], var); }
    bool depends(const Index& index, VarId var) const {
        if (index.depends_on(var)) return true;
        std::vector<ValueId> values;
        index.collect_values(values);
        return std::any_of(values.begin(), values.end(), [&](ValueId v) { return depends(v, var); });
    }

    LoopContents visit(const Block& block) {
        LoopContents contents;
        for (const Stmt& stmt : block.stmts) {
            if (const auto* let = std::get_if<Let>(&stmt)) {
                visit_value(let->value, contents);
            } else if (const auto* store = std::get_if<loopir::Store>(&stmt)) {
                contents.stores.push_back(store);
                if (is_local(store->buffer)) add_once(contents.locals_touched, int{store->buffer});
                plan_.streams_ |= store->streaming;
            } else if (const auto* init = std::get_if<loopir::InitAcc>(&stmt)) {
                add_once(contents.initialised, int{init->accumulator});
            } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
                add_once(contents.accumulated, int{accumulate->accumulator});
            } else if (const auto* product = std::get_if<loopir::MultiplyTiles>(&stmt)) {
                for (const int buffer : {product->rows, product->columns, product->sums}) {
                    if (is_local(buffer)) add_once(contents.locals_touched, int{buffer});
                }
                contents.multiplies_tiles = plan_.multiplies_tiles_ = true;
            } else {
                const Loop& loop = std::get<Loop>(stmt);
                open_.push_back(loop.var);
                LoopContents inner = visit(loop.body.front());
                open_.pop_back();
                merge(contents, inner);
                if (loop.limit) contents.limits.push_back(&*loop.limit);
                contents_[&loop] = std::move(inner);
            }
        }
        return contents;
    }

    void visit_value(ValueId id, LoopContents& contents) {
        const Instr& i = instr(id);
        contents.values.push_back(id);
        std::vector<VarId>& vars = depends_[static_cast<std::size_t>(id)];
        const auto inherit = [&](ValueId from) {
            for (const VarId var : depends_[static_cast<std::size_t>(from)]) add_once(vars, var);
        };
        bool index_like = i.op == ScalarOp::index_value || i.op == ScalarOp::constant;
        bool index_args = i.type == DType::int64;
        for (const ValueId arg : i.args) {
            if (arg == no_value) continue;
            inherit(arg);
            index_args = index_args && index_like_[static_cast<std::size_t>(arg)];
        }
        index_like = index_like || (index_args && i.args[0] != no_value && i.op != ScalarOp::load);
        i.index.collect_vars(vars);
        std::vector<ValueId> values;
        i.index.collect_values(values);
        for (const ValueId value : values) inherit(value);
        if (i.op == ScalarOp::acc_read) {
            for (const VarId var : open_) add_once(vars, var);
        }
        if (i.op == ScalarOp::load && is_local(i.slot)) {
            add_once(contents.locals_touched, int{i.slot});
            for (const VarId var : open_) add_once(vars, var);
        }
        index_like_[static_cast<std::size_t>(id)] = index_like;
    }

    void shape_loops(const Loop& loop, int copies_around = 1, const Loop* around = nullptr) {
        const LoopContents& contents = contents_.at(&loop);
        LoopShape shape;
        for (const int accumulator : contents.accumulated) {
            if (!contains(contents.initialised, accumulator)) shape.carried.push_back(accumulator);
        }
        shape.running = read_inside(shape.carried, contents);
        const bool in_order = !std::all_of(shape.running.begin(), shape.running.end(),
                                           [&](int accumulator) { return runs_along(loop, contents, accumulator); });
        if ((loop.vector || loop.unroll > 1) && !in_order && can_run_together(loop, contents)) {
            const Accesses accesses = accesses_along(loop, contents, around);
            if (loop.vector) {
                shape.lanes = lanes_for(loop, contents, accesses);
                shape.maskable = accesses.contiguous && around == nullptr;
                shape.narrow_memory = accesses.narrow;
                shape.repeatable = shape.carried.empty() && is_repeatable(contents);
            }
            // Code that goes lane by lane is long, and copies of it hide nothing.
            const bool single = loop.vector && (accesses.irregular || around != nullptr);
            const int most = single ? 1 : most_copies / copies_around;
            shape.copies = std::clamp(loop.unroll, 1, std::max(1, most));
            if (loop.extent.is_known()) {
                const std::int64_t trips = loop.extent.value() / shape.lanes;
                shape.copies = static_cast<int>(std::clamp<std::int64_t>(trips, 1, shape.copies));
            }
        }
        const int crossing = crossing_lanes(loop, contents);
        if (crossing > 0) {
            shape.copies = crossing;
            shape.repeatable = is_repeatable(contents);
        }
        if (shape.step() > 1) {
            for (LocalPlace& place : plan_.locals_) {
                if (!private_to(loop, contents, place.buffer)) continue;
                place.private_to.push_back(loop.var);
                place.factor *= shape.step();
            }
        }
        const bool brief = loop.extent.is_known() && loop.extent.value() <= 2 * repeats;
        const int most_around =
            brief ? std::max(target_.vector_registers - spare_registers, most_copies_repeated) : most_copies_repeated;
        if (shape.step() == 1 && !shape.carried.empty() && !loop.parallel && copies_around <= most_around)
            shape.repeats = repeats_of(loop, contents);
        if (loop.parallel) plan_.granularity_ = shape.step();
        const int copies = copies_around * shape.copies;
        plan_.shapes_[&loop] = std::move(shape);
        for (const Stmt& stmt : loop.body.front().stmts) {
            if (const auto* inner = std::get_if<Loop>(&stmt))
                shape_loops(*inner, copies, crossing > 0 ? &loop : nullptr);
        }
    }

    std::vector<int> read_inside(const std::vector<int>& carried, const LoopContents& contents) const {
        std::vector<int> read;
        for (const ValueId value : contents.values) {
            const Instr& i = instr(value);
            if (i.op == ScalarOp::acc_read && contains(carried, int{i.slot})) add_once(read, int{i.slot});
        }
        return read;
    }

    // Each iteration of the loop accumulates once and reads afterwards: what it reads is a running value, which lanes
    // find together.
    bool runs_along(const Loop& loop, const LoopContents& contents, int accumulator) const {
        const auto is_read = [&](ValueId value) {
            return instr(value).op == ScalarOp::acc_read && instr(value).slot == accumulator;
        };
        auto reads = std::count_if(contents.values.begin(), contents.values.end(), is_read);
        bool accumulated = false;
        for (const Stmt& stmt : loop.body.front().stmts) {
            if (const auto* step = std::get_if<loopir::Accumulate>(&stmt)) {
                if (step->accumulator != accumulator) continue;
                if (accumulated || step->guard != no_value) return false;
                accumulated = true;
            } else if (const auto* let = std::get_if<Let>(&stmt)) {
                if (!is_read(let->value)) continue;
                if (!accumulated) return false;
                --reads;
            } else if (const auto* inner = std::get_if<Loop>(&stmt)) {
                if (contains(contents_.at(inner).accumulated, accumulator)) return false;
            }
        }
        return accumulated && reads == 0;
    }

    // A loop over a loop in lanes which lie apart in memory where the iterations of the outer one lie next to each
    // other: as many of those run together as there are lanes, so that squares can be turned in registers. 0: it is
    // none.
    int crossing_lanes(const Loop& loop, const LoopContents& contents) const {
        if (loop.vector || loop.parallel || loop.unroll > 1 || !contents.accumulated.empty()) return 0;
        if (contents.values.size() > most_crossing || !can_run_together(loop, contents)) return 0;
        const Loop* inner = nullptr;
        for (const Stmt& stmt : loop.body.front().stmts) {
            if (std::holds_alternative<Let>(stmt)) continue;
            if (inner != nullptr || !std::holds_alternative<Loop>(stmt)) return 0;
            inner = &std::get<Loop>(stmt);
        }
        if (inner == nullptr || !inner->vector) return 0;
        const LoopContents& within = contents_.at(inner);
        if (!crosses(loop, *inner, within)) return 0;
        const int lanes = lanes_for(*inner, within, accesses_along(*inner, within, &loop));
        const bool enough = !loop.extent.is_known() || loop.extent.value() >= lanes;
        return enough && lanes >= 4 ? lanes : 0;
    }
    bool crosses(const Loop& outer, const Loop& inner, const LoopContents& within) const {
        return can_run_together(inner, within) &&
               std::any_of(within.values.begin(), within.values.end(), [&](ValueId value) {
                   return instr(value).op == ScalarOp::load && crosses(outer, inner, instr(value));
               });
    }
    bool crosses(const Loop& outer, const Loop& inner, const Instr& load) const {
        if (load.args[0] != no_value || is_local(load.slot) || !depends(load.index, inner.var)) return false;
        const Dim step = load.index.coefficient_of(inner.var);
        if (step.is_known() && !gathers(load.index, inner.var) && std::abs(step.value()) <= 4) return false;
        return load.index.coefficient_of(outer.var) == Dim(1) && !gathers(load.index, outer.var);
    }

    // A short sum spends much of its time on counting: that is done once for several of its terms.
    static int repeats_of(const Loop& loop, const LoopContents& contents) {
        const auto is_loop = [](const Stmt& stmt) { return std::holds_alternative<Loop>(stmt); };
        const std::vector<Stmt>& stmts = loop.body.front().stmts;
        if (contents.values.size() > most_repeated || std::any_of(stmts.begin(), stmts.end(), is_loop)) return 1;
        if (!loop.extent.is_known()) return repeats;
        return static_cast<int>(loop.extent.value() <= 2 * repeats ? std::max<std::int64_t>(loop.extent.value(), 1)
                                                                   : repeats);
    }

    // Each iteration writes an element of its own at the same index, so that concurrent ones need one each.
    bool private_to(const Loop& loop, const LoopContents& contents, int buffer) const {
        return std::any_of(contents.stores.begin(), contents.stores.end(), [&](const loopir::Store* store) {
            return store->buffer == buffer && !depends(store->index, loop.var);
        });
    }

    bool can_run_together(const Loop& loop, const LoopContents& contents) const {
        if (contents.multiplies_tiles) return false;
        for (const Index* limit : contents.limits) {
            if (depends(*limit, loop.var)) return false;  // inner loops of different lengths
        }
        for (const int buffer : contents.locals_touched) {
            if (private_to(loop, contents, buffer) && touched_outside(loop, buffer)) return false;
        }
        return true;
    }

    bool touched_outside(const Loop& loop, int buffer) const {
        const auto touches = [&](const LoopContents& contents) {
            std::size_t count = 0;
            for (const ValueId value : contents.values) {
                count += instr(value).op == ScalarOp::load && instr(value).slot == buffer ? 1 : 0;
            }
            for (const loopir::Store* store : contents.stores) count += store->buffer == buffer ? 1 : 0;
            return count;
        };
        return touches(root_) != touches(contents_.at(&loop));
    }

    bool is_repeatable(const LoopContents& contents) const {
        return contents.locals_touched.empty() &&
               std::none_of(contents.stores.begin(), contents.stores.end(), [&](const loopir::Store* store) {
                   return std::any_of(contents.values.begin(), contents.values.end(), [&](ValueId value) {
                       return instr(value).op == ScalarOp::load && instr(value).slot == store->buffer;
                   });
               });
    }

    // How the memory accesses inside a loop move along with it.
    struct Accesses {
        bool contiguous = true;  // all: each step goes to the next element, the previous one, or the same
        bool narrow = false;     // some: elements of 8 or 16 bits
        bool irregular = false;  // some have to go lane by lane
    };
    // `around`: the loop that crosses this one; what it reads in squares goes in whole vectors.
    Accesses accesses_along(const Loop& loop, const LoopContents& contents, const Loop* around = nullptr) const {
        Accesses result;
        const auto look_at = [&](int buffer, const Index& index, bool guarded, bool is_store) {
            const Dim step = index.coefficient_of(loop.var);
            const bool affine = step.is_known() && !gathers(index, loop.var);
            const bool contiguous = affine && std::abs(step.value()) <= 1;
            const bool narrow = size_of(kernel_.buffers[static_cast<std::size_t>(buffer)].dtype) < 4;
            result.contiguous = result.contiguous && contiguous;
            result.narrow = result.narrow || narrow;
            const bool masked_each = guarded && (!contiguous || (narrow && target_.vector_bytes < 64));
            const bool shuffled = affine && !is_store && step.value() >= 2 && step.value() <= 4;
            result.irregular = result.irregular || masked_each || (!contiguous && !shuffled);
        };
        for (const ValueId value : contents.values) {
            const Instr& i = instr(value);
            const bool in_squares = around != nullptr && i.op == ScalarOp::load && crosses(*around, loop, i);
            if (i.op == ScalarOp::load && !in_squares) look_at(i.slot, i.index, i.args[0] != no_value, false);
            if (i.op == ScalarOp::index_value && divides(i.index, loop.var)) result.irregular = true;
        }
        for (const loopir::Store* store : contents.stores) {
            if (!contents.initialised.empty()) break;  // once for each sum: copies are worth it
            look_at(store->buffer, store->index, store->guard != no_value, true);
        }
        return result;
    }

    // Does the index depend on `var` other than affinely?
    bool gathers(const Index& index, VarId var) const {
        std::vector<ValueId> values;
        index.collect_values(values);
        return !index.coefficient_of(var).is_known() ||
               std::any_of(values.begin(), values.end(), [&](ValueId v) { return depends(v, var); });
    }

    // Does the value of the index take more of `var` than additions and shifts of whole vectors?
    bool divides(const Index& index, VarId var) const {
        return std::any_of(index.parts().begin(), index.parts().end(), [&](const Index::Part& part) {
            const loopir::IndexTerm& term = part.term;
            if (term.kind == loopir::IndexTerm::Kind::value) return depends(term.value, var);
            if (term.inner == nullptr || !term.inner->depends_on(var)) return false;
            const bool shifts =
                term.extent.is_known() && std::has_single_bit(static_cast<std::uint64_t>(term.extent.value()));
            return !shifts || divides(*term.inner, var);
        });
    }

    // As many lanes as the widest type of the data fills a vector. Positions and indices do not count: they
    // take several registers where floats take one.
    int lanes_for(const Loop& loop, const LoopContents& contents, const Accesses& accesses) const {
        std::size_t float_bytes = 0;
        std::size_t data_bytes = 0;
        const auto count_type = [&](DType type) {
            if (is_floating(type)) float_bytes = std::max(float_bytes, size_of(type));
            data_bytes = std::max(data_bytes, size_of(type));
        };
        for (const ValueId value : contents.values) {
            if (depends(value, loop.var) && !index_like_[static_cast<std::size_t>(value)])
                count_type(instr(value).type);
        }
        for (const loopir::Store* store : contents.stores) {
            if (depends(store->index, loop.var)) count_type(instr(store->value).type);
        }
        std::size_t bytes = float_bytes != 0 ? float_bytes : std::max<std::size_t>(data_bytes, 1);
        if (accesses.irregular) bytes = std::max<std::size_t>(bytes, 4);
        auto lanes = static_cast<std::uint64_t>(target_.vector_bytes) / bytes;
        if (loop.extent.is_known()) {
            lanes = std::min(
                lanes, std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, loop.extent.value()))));
        }
        return static_cast<int>(lanes);
    }

    void fuse_sums() {
        plan_.fused_.assign(kernel_.instrs.size(), false);
        const std::vector<int> uses = loopir::count_uses(kernel_);
        fuse_sums(kernel_.body, uses);
    }

    // A product and the sum that it goes into stand in the same block: the product is not needed elsewhere. Running
    // sums are found from the products of all lanes.
    void fuse_sums(const Block& block, const std::vector<int>& uses) {
        std::vector<ValueId> products;
        std::vector<int> read;
        for (const Stmt& stmt : block.stmts) {
            const auto* let = std::get_if<Let>(&stmt);
            if (let != nullptr && instr(let->value).op == ScalarOp::acc_read) read.push_back(instr(let->value).slot);
        }
        for (const Stmt& stmt : block.stmts) {
            if (const auto* loop = std::get_if<Loop>(&stmt)) {
                fuse_sums(loop->body.front(), uses);
            } else if (const auto* let = std::get_if<Let>(&stmt)) {
                const Instr& i = instr(let->value);
                const bool fused = (i.op == ScalarOp::mul && is_floating(i.type) && target_.fma && target_.fuse) ||
                                   i.op == ScalarOp::dot_pairs;
                if (fused && uses[static_cast<std::size_t>(let->value)] == 1) products.push_back(let->value);
            } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
                const bool sum = kernel_.accumulators[static_cast<std::size_t>(accumulate->accumulator)].combiner ==
                                 loopir::Combiner::sum;
                if (sum && contains(products, accumulate->value) && !contains(read, int{accumulate->accumulator})) {
                    plan_.fused_[static_cast<std::size_t>(accumulate->value)] = true;
                }
            }
        }
    }

    LoopPlan& plan_;
    const Kernel& kernel_;
    const TargetInfo& target_;
    LoopContents root_;
    std::unordered_map<const Loop*, LoopContents> contents_;
    std::vector<std::vector<VarId>> depends_;  // by value
    std::vector<bool> index_like_;             // by value: an int64 made of indices only
    std::vector<VarId> open_;
};

LoopPlan::LoopPlan(const Kernel& kernel, const TargetInfo& target) {
    LoopAnalysis(*this, kernel, target);
}

const LocalPlace* LoopPlan::local(int buffer) const {
    for (const LocalPlace& place : locals_) {
        if (place.buffer == buffer) return &place;
    }
    return nullptr;
}

}  // namespace topstitch::cpu
