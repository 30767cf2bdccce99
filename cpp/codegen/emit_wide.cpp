// Four neighbouring iterations: their loads as one, then a loop over the four, then their stores as one.
// What happens in an iteration is written once, as without that.
#include <algorithm>
#include <utility>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Instr;
using loopir::no_value;
using loopir::Store;
using loopir::ValueId;

namespace {

// As memory has it.
DType storage_type(DType type) {
    if (type == DType::boolean) return DType::uint8;
    return type == DType::bfloat16 ? DType::uint16 : type;
}

}  // namespace

// The digit of `number` at `place`, in mixed radix.
std::string Emitter::digit_text(const std::string& number, const std::vector<Dim>& radices, std::size_t place) {
    std::string text = number;
    for (std::size_t k = radices.size(); k-- > place + 1;) text += concat(" / ", dim_text(radices[k], false));
    if (place > 0) text += concat(" % ", dim_text(radices[place], false));
    return text;
}

// The variables of the group that `number` stands for, where that is not the variable itself.
void Emitter::emit_digits(const AxisGroup& group, const std::string& number) {
    if (group.axes().size() == 1) return;
    std::vector<Dim> radices;
    for (const Axis& axis : group.axes()) radices.push_back(axis.extent);
    for (std::size_t k = 0; k < radices.size(); ++k) {
        line(concat("const ", index_type(), " ", var(group.axes()[k].var), " = ", digit_text(number, radices, k), ";"));
    }
}

// How many of the four there are below `end`; empty if all are, always.
std::string Emitter::emit_left(const std::string& first, const std::string& end) {
    const std::string four = dialect_.integer(wide_count, narrow_ ? DType::int32 : DType::int64);
    const std::string count = concat("min(", end, " - ", first, ", ", four, ")");
    const std::string& left = local_name("left");
    line(concat("const ", type(DType::int32), " ", left, " = ",
                narrow_ ? count : concat(type(DType::int32), "(", count, ")"), ";"));
    return left;
}

void Emitter::emit_four(const Four& four, const std::function<void()>& each) {
    const std::vector<Axis>& moving = four.accesses.moving;
    const auto moves = [&](const Axis& axis) {
        return std::any_of(moving.begin(), moving.end(), [&](const Axis& other) { return other.var == axis.var; });
    };
    // While the first of the four is meant, the variables that move have other names.
    const std::vector<std::string> names = vars_;
    for (const Axis& axis : four.iterations.axes()) {
        std::string& name = vars_[static_cast<std::size_t>(axis.var)];
        if (four.iterations.axes().size() == 1) {
            name = four.first;
        } else if (moves(axis)) {
            name = local_name(name + "_first");
        }
    }
    emit_digits(four.iterations, four.first);
    Wide wide;
    for (const ValueId value : four.accesses.before) {
        emit(loopir::Let{value});
        wide.before.insert(value);
    }
    for (const ValueId value : four.accesses.loads) wide.loads[value] = emit_wide_load(instr(value), four.left);
    for (const Store* store : four.accesses.stores) {
        const auto b = static_cast<std::size_t>(store->buffer);
        const std::string name = names_.unique(concat(buffers_[b], "_", wide_count), "four");
        line(concat(dialect_.wide_type(storage_type(kernel_.buffers[b].dtype)), " ", name, ";"));
        wide.stores[store] = name;
    }
    const std::vector<std::string> first_names = vars_;
    vars_ = names;
    wide.part = local_name("part");
    line(dialect_.unroll());
    open(concat("for (int ", wide.part, " = 0; ", wide.part, " < ", wide_count, "; ++", wide.part, ")"));
    if (!four.left.empty() && four.stops) line(concat("if (", wide.part, " >= ", four.left, ") break;"));
    if (four.accesses.counted && moving.size() == 1) {
        const auto v = static_cast<std::size_t>(moving.front().var);
        line(concat("const ", index_type(), " ", vars_[v], " = ", first_names[v], " + ", wide.part, ";"));
    } else if (four.accesses.counted) {
        emit_digits(four.iterations, concat("(", four.first, " + ", wide.part, ")"));
    }
    wide_ = std::move(wide);
    each();
    close();
    vars_ = first_names;
    const Wide done = *std::exchange(wide_, std::nullopt);
    for (const Store* store : four.accesses.stores) emit_wide_store(*store, done.stores.at(store), four.left);
    vars_ = names;
}

std::string Emitter::emit_wide_load(const Instr& load, const std::string& left) {
    const auto b = static_cast<std::size_t>(load.slot);
    const DType storage = storage_type(kernel_.buffers[b].dtype);
    const std::string pointer = concat(buffers_[b], " + ", offset(load.index));
    std::string text = left.empty() ? dialect_.wide_load(storage, pointer)
                                    : concat(helpers_.use({Helper::load_four, storage}), "(", pointer, ", ", left, ")");
    const std::string four = dialect_.wide_type(storage);
    if (load.args[0] != no_value) text = concat(value(load.args[0]), " ? ", text, " : ", four, "(0)");
    const std::string name = names_.unique(concat(buffers_[b], "_", wide_count), "four");
    line(concat("const ", four, " ", name, " = ", text, ";"));
    return name;
}

void Emitter::emit_wide_store(const Store& store, const std::string& name, const std::string& left) {
    const auto b = static_cast<std::size_t>(store.buffer);
    const DType storage = storage_type(kernel_.buffers[b].dtype);
    const std::string pointer = concat(buffers_[b], " + ", offset(store.index));
    if (store.guard != no_value) open(concat("if (", value(store.guard), ")"));
    line(left.empty()
             ? dialect_.wide_store(storage, pointer, name)
             : concat(helpers_.use({Helper::store_four, storage}), "(", pointer, ", ", name, ", ", left, ");"));
    if (store.guard != no_value) close();
}

// Names whose scopes do not meet are the same wherever they are needed.
const std::string& Emitter::local_name(const std::string& wanted) {
    std::string& name = local_names_[wanted];
    if (name.empty()) name = names_.unique(wanted, "t");
    return name;
}

}  // namespace topstitch::codegen
