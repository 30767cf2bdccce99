// Kernels as text, for people and as the canonical form by which equal kernels are found.
// Statements that refer to nothing print as "?", because the verifier shows broken kernels.
#include "loopir/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

template <typename T>
const T* find(const std::vector<T>& items, std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(items.size()) ? &items[static_cast<std::size_t>(id)] : nullptr;
}

const char* role_text(BufferParam::Role role) {
    switch (role) {
        case BufferParam::Role::input:
            return "input";
        case BufferParam::Role::output:
            return "output";
        case BufferParam::Role::inout:
            return "inout";
        case BufferParam::Role::local:
            return "local";
    }
    return "?";
}

template <typename T, typename... Format>
std::string to_text(T value, Format... format) {
    char text[64];
    const auto result = std::to_chars(text, text + sizeof text, value, format...);
    return {text, result.ptr};
}

// Exact for the canonical form: "0x1.8p+1"; the shortest that reads back for people: "3".
template <typename T>
std::string float_text(T value, bool exact) {
    if (std::isnan(value)) return "nan";
    if (!exact || std::isinf(value)) return to_text(value);
    const std::string digits = to_text(std::fabs(value), std::chars_format::hex);
    return (std::signbit(value) ? "-0x" : "0x") + digits;
}

std::string constant_text(const Instr& instr, bool exact) {
    if (instr.type == DType::boolean) return instr.integer != 0 ? "true" : "false";
    if (instr.type == DType::uint64) return to_text(static_cast<std::uint64_t>(instr.integer));
    if (instr.type == DType::float32) return float_text(static_cast<float>(instr.real), exact);
    if (instr.type == DType::float64) return float_text(instr.real, exact);
    return to_text(instr.integer);
}

// Names of people where they are unique, else numbers.
template <typename T>
std::vector<std::string> unique_names(const std::vector<T>& items, const char* prefix) {
    std::map<std::string, int> uses;
    for (const T& item : items) ++uses[item.name];
    std::vector<std::string> names;
    for (std::size_t k = 0; k < items.size(); ++k) {
        const std::string& name = items[k].name;
        const bool unique = !name.empty() && uses[name] == 1;
        std::string numbered = concat(name.empty() ? prefix : name + "_", k);
        while (!unique && uses.count(numbered) != 0) numbered += "_";
        names.push_back(unique ? name : numbered);
    }
    return names;
}

class Printer {
public:
    Printer(const Kernel& kernel, bool canonical) : kernel_(kernel), canonical_(canonical) {
        if (canonical) {
            params_ = size_params(kernel);
        } else {
            var_names_ = unique_names(kernel.vars, "i");
            buffer_names_ = unique_names(kernel.buffers, "b");
        }
    }

    std::string kernel_text() {
        std::string text = "kernel";
        if (!canonical_ && !kernel_.name.empty()) text += " " + kernel_.name;
        text += "(";
        for (std::size_t k = 0; k < kernel_.buffers.size(); ++k) {
            if (k > 0) text += ", ";
            text += buffer_declaration(static_cast<std::int32_t>(k));
        }
        text += ")\n";
        append(text, kernel_.body, 1);
        return text;
    }

    std::string statement(const Stmt& stmt) {
        return std::visit([this](const auto& s) { return head(s); }, stmt);
    }

private:
    void append(std::string& text, const Block& block, int depth) {
        for (const Stmt& stmt : block.stmts) {
            text += std::string(2 * static_cast<std::size_t>(depth), ' ') + statement(stmt) + "\n";
            if (const auto* loop = std::get_if<Loop>(&stmt)) {
                for (const Block& body : loop->body) append(text, body, depth + 1);
            }
        }
    }

    std::string buffer_declaration(std::int32_t id) {
        const BufferParam& buffer = kernel_.buffers[static_cast<std::size_t>(id)];
        std::string text = concat(buffer_name(id), ": ", role_text(buffer.role), " ", name_of(buffer.dtype));
        // Code depends on the size of scratch memory only.
        if (!canonical_ || buffer.role == BufferParam::Role::local) text += "[" + dim_text(buffer.size) + "]";
        return text;
    }

    std::string head(const Let& let) {
        const Instr* instr = find(kernel_.instrs, let.value);
        if (canonical_) values_.try_emplace(let.value, values_.size());
        if (instr == nullptr) return value_name(let.value) + " = ?";
        return concat(value_name(let.value), ": ", name_of(instr->type), " = ", instr_text(*instr));
    }

    std::string head(const Store& store) {
        return concat("store ", buffer_name(store.buffer), "[", index_text(store.index), "], ", value_name(store.value),
                      guard_text(store.guard), store.streaming ? " streaming" : "");
    }

    std::string head(const InitAcc& init) {
        if (canonical_) accumulators_.try_emplace(init.accumulator, accumulators_.size());
        const Accumulator* acc = find(kernel_.accumulators, init.accumulator);
        const std::string what = acc == nullptr ? "?" : concat(name_of(acc->combiner), " ", name_of(acc->type));
        return concat("init ", accumulator_name(init.accumulator), ": ", what);
    }

    std::string head(const Accumulate& step) {
        std::string text = concat("accumulate ", accumulator_name(step.accumulator), ", ", value_name(step.value));
        if (step.position != no_value) text += " at " + value_name(step.position);
        return text + guard_text(step.guard);
    }

    std::string head(const MultiplyTiles& product) {
        const auto at = [this](std::int32_t buffer, const Index& index) {
            return concat(buffer_name(buffer), "[", index_text(index), "]");
        };
        std::string text =
            concat("multiply ", at(product.rows, product.rows_at), " ", name_of(product.rows_type), " by ",
                   at(product.columns, product.columns_at), " ", name_of(product.columns_type), " to ",
                   at(product.sums, product.sums_at), " row ", product.sums_row, ", tiles ", product.row_tiles, " by ",
                   product.column_tiles, ", parts ", product.parts, ", steps ", index_text(product.steps));
        if (product.adds != no_value) text += " adds " + value_name(product.adds);
        if (product.plain != no_value) text += " plain " + value_name(product.plain);
        return text;
    }

    std::string head(const Loop& loop) {
        if (canonical_) vars_.try_emplace(loop.var, vars_.size());
        std::string text = loop.parallel ? "parallel " : "";
        if (loop.vector) text += "vector ";
        text += concat("for ", var_name(loop.var), " in 0..", dim_text(loop.extent));
        if (loop.limit) text += concat(" below ", index_text(*loop.limit));
        if (loop.unroll != 1) text += concat(" unroll ", loop.unroll);
        return text + ":";
    }

    std::string instr_text(const Instr& instr) {
        std::string text = info(instr.op).name;
        switch (instr.op) {
            case ScalarOp::constant:
                return text + " " + constant_text(instr, canonical_);
            case ScalarOp::index_value:
                return text + " " + index_text(instr.index);
            case ScalarOp::load:
                return concat(text, " ", buffer_name(instr.slot), "[", index_text(instr.index), "]",
                              guard_text(instr.args[0]));
            case ScalarOp::acc_read:
                return concat(text, " ", accumulator_name(instr.slot), instr.integer == 0 ? "" : ".position");
            case ScalarOp::round_to:
            case ScalarOp::to_bits16:
            case ScalarOp::from_bits16:
            case ScalarOp::dot_pairs:
                text += concat(" ", name_of(instr.memory));
                break;
            default:
                break;
        }
        for (int k = 0; k < info(instr.op).arity; ++k) text += (k == 0 ? " " : ", ") + value_name(instr.args[k]);
        return text;
    }

    std::string guard_text(ValueId guard) { return guard == no_value ? "" : " if " + value_name(guard); }

    std::string value_name(ValueId value) {
        if (!canonical_) return value == no_value ? "%?" : concat("%", value);
        const auto found = values_.find(value);
        return found == values_.end() ? "%?" : concat("%", found->second);
    }

    std::string accumulator_name(std::int32_t id) {
        if (!canonical_) return concat("a", id);
        const auto found = accumulators_.find(id);
        return found == accumulators_.end() ? "a?" : concat("a", found->second);
    }

    std::string var_name(VarId var) {
        if (canonical_) {
            const auto found = vars_.find(var);
            return found == vars_.end() ? "v?" : concat("v", found->second);
        }
        const std::string* name = find(var_names_, var);
        return name == nullptr ? concat("i", var, "?") : *name;
    }

    std::string buffer_name(std::int32_t id) {
        if (canonical_) return concat("b", id);
        const std::string* name = find(buffer_names_, id);
        return name == nullptr ? concat("b", id, "?") : *name;
    }

    std::string dim_text(const Dim& dim) {
        if (!canonical_ || dim.is_known()) return dim.str();
        const auto place = std::find(params_.begin(), params_.end(), dim);
        return place == params_.end() ? "p?" : concat("p", place - params_.begin());
    }

    std::string index_text(const Index& index) {
        return index.str({[this](VarId var) { return var_name(var); },
                          [this](ValueId value) { return value_name(value); },
                          [this](const Dim& dim) { return dim_text(dim); }});
    }

    const Kernel& kernel_;
    bool canonical_;
    std::vector<Dim> params_;
    std::vector<std::string> var_names_;
    std::vector<std::string> buffer_names_;
    // Canonical numbers, in order of appearance.
    std::map<ValueId, std::size_t> values_;
    std::map<VarId, std::size_t> vars_;
    std::map<std::int32_t, std::size_t> accumulators_;
};

}  // namespace

std::string print(const Kernel& kernel, bool canonical) {
    return Printer(kernel, canonical).kernel_text();
}

std::string print_statement(const Kernel& kernel, const Stmt& stmt) {
    return Printer(kernel, false).statement(stmt);
}

}  // namespace topstitch::loopir
