// The builder of kernels: where values are placed, and which of them are the same.
// Folding of constants and exact identities is in fold.cpp.
#include "loopir/builder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/mixed_hash.h"
#include "loopir/evaluate.h"
#include "loopir/prune.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

// Commutative operations have one hash for both orders.
std::size_t hash_of(const Instr& instr) {
    std::size_t seed = static_cast<std::size_t>(instr.op);
    const auto first = static_cast<std::size_t>(instr.args[0]);
    const auto second = static_cast<std::size_t>(instr.args[1]);
    const bool swap = is_commutative(instr.op) && second < first;
    for (std::size_t part : {static_cast<std::size_t>(instr.type), swap ? second : first, swap ? first : second,
                             static_cast<std::size_t>(instr.args[2]), static_cast<std::size_t>(instr.integer),
                             static_cast<std::size_t>(std::bit_cast<std::uint64_t>(instr.real)),
                             static_cast<std::size_t>(instr.slot), static_cast<std::size_t>(instr.memory)}) {
        seed = mixed_hash(seed, part);
    }
    return mixed_hash(seed, instr.index.hash());
}

bool same(const Instr& a, const Instr& b) {
    const bool payload = a.op == b.op && a.type == b.type && a.integer == b.integer &&
                         std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) &&
                         a.slot == b.slot && a.memory == b.memory;
    if (!payload || a.args[2] != b.args[2]) return false;
    const bool straight = a.args[0] == b.args[0] && a.args[1] == b.args[1];
    const bool crossed = is_commutative(a.op) && a.args[0] == b.args[1] && a.args[1] == b.args[0];
    return (straight || crossed) && a.index == b.index;
}

}  // namespace

Builder::Builder() {
    open_.emplace_back();
}

// --- Placing values.

void Builder::check_open(ValueId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= depths_.size()) {
        throw InternalError(concat("builder: there is no value %", id));
    }
    if (depths_[static_cast<std::size_t>(id)] == closed_scope) {
        throw InternalError(
            concat("builder: %", id, " was computed in a loop that is closed; keep it in a local buffer instead"));
    }
}

void Builder::check_type(ValueId id, DType type, const char* what) const {
    if (this->type(id) == type) return;
    throw InternalError(concat("builder: ", what, " is ", name_of(this->type(id)), ", but must be ", name_of(type)));
}

int Builder::depth_of(ValueId id) const {
    check_open(id);
    return depths_[static_cast<std::size_t>(id)];
}

int Builder::depth_of(const Index& index) const {
    int depth = 0;
    std::vector<VarId> vars;
    index.collect_vars(vars);
    for (VarId var : vars) {
        if (var < 0 || static_cast<std::size_t>(var) >= var_depths_.size() ||
            var_depths_[static_cast<std::size_t>(var)] == closed_scope) {
            throw InternalError(
                concat("builder: index ", index.str(), " uses the variable of a loop that is not open"));
        }
        depth = std::max(depth, var_depths_[static_cast<std::size_t>(var)]);
    }
    std::vector<ValueId> values;
    index.collect_values(values);
    for (ValueId value : values) depth = std::max(depth, depth_of(value));
    return depth;
}

ValueId Builder::find_equal(const Instr& instr, int depth) const {
    const auto [begin, end] = seen_.equal_range(hash_of(instr));
    for (auto entry = begin; entry != end; ++entry) {
        const bool reachable = depths_[static_cast<std::size_t>(entry->second)] == depth;
        if (reachable && same(this->instr(entry->second), instr)) return entry->second;
    }
    return no_value;
}

ValueId Builder::place(Instr instr, int depth, bool shareable) {
    if (std::string error = type_error(kernel_, instr); !error.empty()) {
        throw InternalError(concat("builder: ", info(instr.op).name, ": ", error));
    }
    const auto id = static_cast<ValueId>(kernel_.instrs.size());
    if (shareable) seen_.emplace(hash_of(instr), id);
    kernel_.instrs.push_back(std::move(instr));
    depths_.push_back(depth);
    Scope& scope = open_[static_cast<std::size_t>(depth)];
    scope.block.stmts.emplace_back(Let{id});
    scope.values.push_back(id);
    return id;
}

// Equal pure values have equal operands and so the same depth.
ValueId Builder::insert(Instr instr) {
    int depth = depth_of(instr.index);
    for (ValueId arg : instr.args) {
        if (arg != no_value) depth = std::max(depth, depth_of(arg));
    }
    const ValueId known = find_equal(instr, depth);
    return known != no_value ? known : place(std::move(instr), depth, true);
}

// Shared within one loop body only, until a statement writes to the slot.
ValueId Builder::insert_read(Instr instr) {
    const ValueId known = find_equal(instr, depth());
    if (known != no_value) return known;
    reads_.push_back(place(std::move(instr), depth(), true));
    return reads_.back();
}

void Builder::forget(ValueId id) {
    const auto [begin, end] = seen_.equal_range(hash_of(instr(id)));
    const auto entry = std::find_if(begin, end, [id](const auto& item) { return item.second == id; });
    if (entry != end) seen_.erase(entry);
}

void Builder::forget_reads(ScalarOp op, std::int32_t slot) {
    std::erase_if(reads_, [&](ValueId id) {
        const bool outdated = instr(id).op == op && instr(id).slot == slot;
        if (outdated) forget(id);
        return outdated;
    });
}

// --- Values.

ValueId Builder::constant(const Instr& constant) {
    return insert(constant);
}

ValueId Builder::constant(double value, DType type) {
    if (!is_value_type(type)) {
        throw InternalError(concat("builder: a constant of type ", name_of(type), "; use its compute type ",
                                   name_of(compute_type(type))));
    }
    return constant(constant_instr(scalar_from_double(value, type), type));
}

ValueId Builder::constant_int(std::int64_t value, DType type) {
    if (!is_integer(type) && type != DType::boolean) {
        throw InternalError(concat("builder: an integer constant of type ", name_of(type)));
    }
    // The low bits: of a bool that is one bit.
    if (type == DType::boolean) value &= 1;
    return constant(constant_instr(scalar_from_int(value, type), type));
}

ValueId Builder::op(ScalarOp op, ValueId a, ValueId b, ValueId c) {
    Instr result;
    result.op = op;
    result.args[0] = a;
    result.args[1] = b;
    result.args[2] = c;
    for (int k = 0; k < 3; ++k) {
        const bool wanted = k < info(op).arity;
        if (wanted != (result.args[k] != no_value)) {
            throw InternalError(concat("builder: ", info(op).name, " takes ", info(op).arity, " operands"));
        }
        if (wanted) check_open(result.args[k]);
    }
    result.type = result_type(op, type(op == ScalarOp::select ? b : a));
    if (std::string error = type_error(kernel_, result); !error.empty()) {
        throw InternalError(concat("builder: ", info(op).name, ": ", error));
    }
    const ValueId known = fold(result);
    return known != no_value ? known : insert(result);
}

ValueId Builder::convert(ScalarOp op, ValueId operand, DType type, DType memory, ValueId second) {
    check_open(operand);
    if (second != no_value) check_open(second);
    Instr instr;
    instr.op = op;
    instr.type = type;
    instr.args[0] = operand;
    instr.args[1] = second;
    instr.memory = memory;
    if (std::string error = type_error(kernel_, instr); !error.empty()) {
        throw InternalError(concat("builder: ", info(op).name, ": ", error));
    }
    const ValueId known = fold(instr);
    return known != no_value ? known : insert(instr);
}

ValueId Builder::cast(ValueId a, DType type) {
    return convert(ScalarOp::cast, a, type, DType::float32);
}

ValueId Builder::bitcast(ValueId a, DType type) {
    return convert(ScalarOp::bitcast, a, type, DType::float32);
}

ValueId Builder::round_to(ValueId a, DType memory) {
    return convert(ScalarOp::round_to, a, DType::float32, memory);
}

ValueId Builder::to_bits16(ValueId a, DType memory) {
    return convert(ScalarOp::to_bits16, a, DType::uint16, memory);
}

ValueId Builder::from_bits16(ValueId a, DType memory) {
    return convert(ScalarOp::from_bits16, a, DType::float32, memory);
}

ValueId Builder::dot_pairs(ValueId a, ValueId b, DType memory) {
    return convert(ScalarOp::dot_pairs, a, memory == DType::int16 ? DType::int32 : DType::float32, memory, b);
}

ValueId Builder::index_value(const Index& index) {
    const Index resolved = resolve(index);
    if (resolved.constant().is_known() && resolved.is_constant()) {
        return constant_int(resolved.constant().value(), DType::int64);
    }
    if (resolved.parts().size() == 1) {
        const Index::Part& only = resolved.parts().front();
        if (only.term.kind == IndexTerm::Kind::value && resolved == Index::value(only.term.value)) {
            return only.term.value;
        }
    }
    Instr instr;
    instr.op = ScalarOp::index_value;
    instr.type = DType::int64;
    instr.index = resolved;
    return insert(std::move(instr));
}

ValueId Builder::load(int buffer, const Index& index, ValueId guard) {
    const BufferParam& source = this->buffer(buffer);
    const std::optional<ValueId> condition = resolve_guard(guard);
    // Nothing reads an empty buffer, but a load that does not depend on the empty loop would be moved out of it.
    const bool empty = source.role == BufferParam::Role::input && source.size == Dim(0);
    if (!condition || empty) return constant(0.0, compute_type(source.dtype));
    Instr instr;
    instr.op = ScalarOp::load;
    instr.type = compute_type(source.dtype);
    instr.args[0] = *condition;
    instr.slot = buffer;
    instr.index = resolve(index);
    if (source.role == BufferParam::Role::input) return insert(std::move(instr));
    depth_of(instr.index);  // refuses what is out of reach
    return insert_read(std::move(instr));
}

ValueId Builder::acc_read(int accumulator, int component) {
    Instr instr;
    instr.op = ScalarOp::acc_read;
    instr.type = component == 0 ? this->accumulator(accumulator).type : DType::int64;
    instr.integer = component;
    instr.slot = accumulator;
    return insert_read(std::move(instr));
}

std::optional<double> Builder::constant_value(ValueId id) const {
    check_open(id);
    if (!is_constant(id)) return std::nullopt;
    return scalar_to_double(constant_scalar(instr(id)), type(id));
}

Index Builder::resolve(const Index& index) const {
    std::vector<ValueId> values;
    index.collect_values(values);
    bool plain = true;
    for (ValueId value : values) {
        check_open(value);
        check_type(value, DType::int64, "a value in an index");
        const ScalarOp op = instr(value).op;
        if (op == ScalarOp::constant || op == ScalarOp::index_value) plain = false;
    }
    if (plain) return index;
    return index.substitute_values([this](ValueId value) {
        const Instr& source = instr(value);
        if (source.op == ScalarOp::constant) return Index(source.integer);
        return source.op == ScalarOp::index_value ? source.index : Index::value(value);
    });
}

std::optional<ValueId> Builder::resolve_guard(ValueId guard) const {
    if (guard == no_value) return no_value;
    check_open(guard);
    check_type(guard, DType::boolean, "a guard");
    if (!is_constant(guard)) return guard;
    if (instr(guard).integer != 0) return no_value;
    return std::nullopt;
}

// --- Buffers and accumulators.

int Builder::add_buffer(BufferParam buffer) {
    kernel_.buffers.push_back(std::move(buffer));
    return static_cast<int>(kernel_.buffers.size()) - 1;
}

int Builder::add_accumulator(Combiner combiner, DType type) {
    if (std::string error = type_error(combiner, type); !error.empty()) {
        throw InternalError(concat("builder: ", name_of(combiner), ": ", error));
    }
    kernel_.accumulators.push_back({combiner, type});
    return static_cast<int>(kernel_.accumulators.size()) - 1;
}

const BufferParam& Builder::buffer(int id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= kernel_.buffers.size()) {
        throw InternalError(concat("builder: there is no buffer ", id));
    }
    return kernel_.buffers[static_cast<std::size_t>(id)];
}

const Accumulator& Builder::accumulator(int id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= kernel_.accumulators.size()) {
        throw InternalError(concat("builder: there is no accumulator ", id));
    }
    return kernel_.accumulators[static_cast<std::size_t>(id)];
}

// --- Statements.

Index Builder::begin_loop(const std::string& name, const Dim& extent, const std::optional<Index>& limit) {
    const auto var = static_cast<VarId>(kernel_.vars.size());
    const std::optional<Index> end = limit ? std::optional<Index>(resolve(*limit)) : std::nullopt;
    kernel_.vars.push_back({name, extent});
    open_.emplace_back();
    open_.back().var = var;
    if (end && !(*end == Index(extent))) open_.back().limit = end;
    var_depths_.push_back(depth());
    return Index::var(var, extent);
}

void Builder::end_loop() {
    if (depth() == 0) throw InternalError("builder: end_loop without an open loop");
    Scope scope = std::move(open_.back());
    open_.pop_back();
    for (ValueId id : scope.values) {
        forget(id);
        depths_[static_cast<std::size_t>(id)] = closed_scope;
    }
    std::erase_if(reads_, [this](ValueId id) { return depths_[static_cast<std::size_t>(id)] == closed_scope; });
    var_depths_[static_cast<std::size_t>(scope.var)] = closed_scope;

    Loop loop;
    loop.var = scope.var;
    loop.extent = kernel_.vars[static_cast<std::size_t>(scope.var)].extent;
    loop.limit = std::move(scope.limit);
    loop.body.push_back(std::move(scope.block));
    open_.back().block.stmts.emplace_back(std::move(loop));
}

void Builder::init_acc(int accumulator) {
    this->accumulator(accumulator);
    forget_reads(ScalarOp::acc_read, accumulator);
    open_.back().block.stmts.emplace_back(InitAcc{accumulator});
}

void Builder::accumulate(int accumulator, ValueId value, ValueId position, ValueId guard) {
    const Accumulator& acc = this->accumulator(accumulator);
    const std::optional<ValueId> condition = resolve_guard(guard);
    if (!condition) return;
    check_open(value);
    check_type(value, acc.type, "the value accumulated");
    if (is_arg_reduction(acc.combiner) != (position != no_value)) {
        throw InternalError(concat("builder: only argmin and argmax take a position, and they need one; this is a ",
                                   name_of(acc.combiner)));
    }
    if (position != no_value) {
        check_open(position);
        check_type(position, DType::int64, "the position accumulated");
    }
    forget_reads(ScalarOp::acc_read, accumulator);
    open_.back().block.stmts.emplace_back(Accumulate{accumulator, value, position, *condition});
}

void Builder::store(int buffer, const Index& index, ValueId value, ValueId guard) {
    const BufferParam& target = this->buffer(buffer);
    const std::optional<ValueId> condition = resolve_guard(guard);
    if (!condition) return;
    if (target.role == BufferParam::Role::input) {
        throw InternalError(concat("builder: a store to the input ", target.name));
    }
    check_open(value);
    check_type(value, compute_type(target.dtype), "the value stored");
    Store stmt;
    stmt.buffer = buffer;
    stmt.index = resolve(index);
    depth_of(stmt.index);  // refuses what is out of reach
    stmt.value = value;
    stmt.guard = *condition;
    forget_reads(ScalarOp::load, buffer);
    open_.back().block.stmts.emplace_back(std::move(stmt));
}

void Builder::multiply_tiles(MultiplyTiles product) {
    for (Index* index : {&product.rows_at, &product.columns_at, &product.sums_at, &product.steps}) {
        *index = resolve(*index);
        depth_of(*index);
    }
    for (ValueId* condition : {&product.adds, &product.plain}) {
        if (*condition == no_value) continue;
        check_open(*condition);
        check_type(*condition, DType::boolean, "the condition of a product");
        if (is_number(*condition, 0)) *condition = no_value;
    }
    forget_reads(ScalarOp::load, product.sums);
    open_.back().block.stmts.emplace_back(std::move(product));
}

Kernel Builder::finish(std::string name) {
    if (depth() != 0) throw InternalError(concat("builder: ", depth(), " loops are still open"));
    kernel_.name = std::move(name);
    kernel_.body = std::move(open_.back().block);
    drop_unused(kernel_);
    verify(kernel_);
    return std::move(kernel_);
}

}  // namespace topstitch::loopir
