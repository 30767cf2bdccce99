// The frame of a kernel's source: its sizes, parameters, shared memory and helper functions, around its statements.
// See emit.h.
#include "codegen/emit.h"

#include <algorithm>

#include "codegen/emitter.h"
#include "codegen/join_blocks.h"
#include "loopir/contract.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::BufferParam;
using loopir::Kernel;

namespace {

std::string description(const BufferParam& buffer) {
    return comment_text(concat(buffer.name, ": ", name_of(buffer.dtype), "[", buffer.size.str(), "]"));
}

}  // namespace

void Emitter::name_things() {
    for (const BufferParam& buffer : kernel_.buffers) buffers_.push_back(names_.unique(buffer.name, "b"));
    for (const loopir::LoopVarInfo& info : kernel_.vars) vars_.push_back(names_.unique(info.name, "i"));
    for (const Dim& dim : size_params_) {
        sizes_.push_back(names_.unique(dim.is_symbol() ? std::string(dim.symbol_name()) : "size", "size"));
    }
    entry_ = names_.unique(kernel_.name, "kernel_");
}

std::string Emitter::sizes_struct() const {
    if (sizes_.empty()) return "";
    std::string text = "struct Sizes {\n";
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
        const std::string meaning = comment_text(size_params_[k].str());
        text += concat("    ", type(DType::int64), " ", sizes_[k], ";", meaning == sizes_[k] ? "" : "  // " + meaning,
                       "\n");
    }
    return text + "};\n\n";
}

KernelHead Emitter::head() const {
    KernelHead head;
    head.name = entry_;
    head.sizes = !sizes_.empty();
    head.groups = plan_.groups();
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        const BufferParam& buffer = kernel_.buffers[b];
        const bool local = buffer.role == BufferParam::Role::local;
        const KernelHead::Buffer entry{dialect_.memory_type(buffer.dtype), buffers_[b],
                                       buffer.role != BufferParam::Role::input, description(buffer)};
        if (!local) head.buffers.push_back(entry);
        if (local && plan_.space(static_cast<int>(b)) == GridPlan::Space::group_by_launch) {
            head.group_buffers.push_back(entry);
        }
    }
    return head;
}

// What stands before the first statement: memory and sizes.
std::string Emitter::declarations() const {
    std::string text;
    const auto add = [&](const std::string& declaration) { text += "    " + declaration + "\n"; };
    // Loops of the grid stop threads past their end; without any, one thread does it all.
    if (!plan_.groups() && plan_.grid().empty()) add("if (at.x != 0 || at.y != 0) return;");
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        const BufferParam& buffer = kernel_.buffers[b];
        if (buffer.role != BufferParam::Role::local || !buffer.size.is_known()) continue;
        const std::string memory = dialect_.memory_type(buffer.dtype);
        const bool own = plan_.space(static_cast<int>(b)) == GridPlan::Space::thread;
        add(concat(own ? memory : dialect_.group_array(memory), " ", buffers_[b], "[",
                   std::max<std::int64_t>(buffer.size.value(), 1), "];  // ", description(buffer)));
    }
    const int simdgroups = plan_.group_threads() / dialect_.limits().simd_width;
    const auto add_shared = [&](DType dtype, const std::string& name) {
        add(concat(dialect_.group_array(type(dtype)), " shared_", name, "[", simdgroups, "];"));
    };
    for (const DType dtype : joined_types_) add_shared(dtype, type(dtype));
    if (joins_positions_) add_shared(DType::int64, "position");
    if (joins_pairs_) add_shared(DType::float32, "low");
    for (const std::size_t k : used_sizes_) {
        const std::string field = concat("sizes.", sizes_[k]);
        add(concat("const ", index_type(), " ", sizes_[k], " = ",
                   narrow_ ? concat(index_type(), "(", field, ")") : field, ";"));
    }
    return text;
}

Launch Emitter::launch() const {
    if (product_ != nullptr) return product_launch();
    Launch launch;
    launch.groups = plan_.groups();
    launch.group_threads = plan_.group_threads();
    for (std::size_t k = 0; k < plan_.grid().size(); ++k) {
        const loopir::Loop& loop = *plan_.grid()[k];
        SizeExpr& count = launch.groups || k + 1 == plan_.grid().size() ? launch.x : launch.y;
        count = count * ceil_div(size(loop.extent), plan_.wide(loop) != nullptr ? wide_count : 1);
    }
    const auto add_bytes = [&](DType dtype, std::int64_t elements) {
        launch.static_group_bytes += elements * static_cast<std::int64_t>(size_of(dtype));
    };
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        const BufferParam& buffer = kernel_.buffers[b];
        if (buffer.role != BufferParam::Role::local) continue;
        const GridPlan::Space space = plan_.space(static_cast<int>(b));
        if (space == GridPlan::Space::group) add_bytes(buffer.dtype, buffer.size.value());
        if (space == GridPlan::Space::group_by_launch) {
            launch.group_bytes.push_back(size(buffer.size) * static_cast<std::int64_t>(size_of(buffer.dtype)));
        }
    }
    const int simdgroups = plan_.group_threads() / dialect_.limits().simd_width;
    for (const DType dtype : joined_types_) add_bytes(dtype, simdgroups);
    if (joins_positions_) add_bytes(DType::int64, simdgroups);
    if (joins_pairs_) add_bytes(DType::float32, simdgroups);
    if (launch.groups) launch.simd_width = dialect_.limits().simd_width;
    return launch;
}

// The type of the matrices, if there are any.
std::optional<DType> Emitter::matrices() const {
    const bool tiles = product_ != nullptr && product_->form == ProductPlan::Form::tiles;
    if (plan_.has_matrices()) return DType::float32;
    return tiles ? std::optional(product_->element) : std::nullopt;
}

bool Source::fits_narrow(std::span<const std::int64_t> size_arguments) const {
    return std::all_of(magnitudes.begin(), magnitudes.end(),
                       [&](const SizeExpr& bound) { return bound.evaluate(size_arguments) <= most_narrow; });
}

Source Emitter::run() {
    name_things();
    declared_.emplace_back();
    if (product_ != nullptr) {
        emit_product();
    } else {
        emit_statements(kernel_.body);
    }
    Source source;
    source.entry = entry_;
    source.sizes = size_params_;
    source.launch = launch();
    source.narrow = narrow_;
    source.magnitudes = magnitudes_;
    const KernelHead head = this->head();
    if (head.sizes) source.sizes_slot = static_cast<int>(head.buffers.size());
    source.text = concat(dialect_.prologue(matrices()), "\n", sizes_struct(), helpers_.text(), "// ",
                         comment_text(kernel_.name), "\n", dialect_.head(head), declarations(), body_, "}\n");
    return source;
}

Kernel prepared(const Kernel& kernel, const Dialect& dialect, const EmitOptions& options) {
    return loopir::expand_math(options.fused_multiply_add ? loopir::contract(kernel) : kernel, math_target(dialect));
}

std::variant<Source, Refusal> emit(const Kernel& kernel, const Dialect& dialect, const EmitOptions& options) {
    const Kernel ready = options.fused_multiply_add ? loopir::contract(kernel) : kernel;
    const auto refused = [&](const std::string& reason) {
        return Refusal{concat("kernel ", kernel.name, " has no ", dialect.name(), " form: ", reason)};
    };
    if (std::any_of(ready.instrs.begin(), ready.instrs.end(),
                    [](const loopir::Instr& i) { return i.op == loopir::ScalarOp::dot_pairs; }))
        return refused("its factors are packed in pairs");
    const auto is_bound = [](const BufferParam& buffer) { return buffer.role != BufferParam::Role::local; };
    const auto bound = std::count_if(ready.buffers.begin(), ready.buffers.end(), is_bound);
    const std::vector<Dim> sizes = loopir::size_params(ready);
    const auto slots = bound + (sizes.empty() ? 0 : 1);
    if (slots > dialect.limits().buffers) {
        return refused(concat("it needs ", slots, " buffers, and ", dialect.limits().buffers, " is the most"));
    }
    const auto source = [&](const Kernel& form, const LoopFacts& facts, const GridPlan& plan,
                            const ProductPlan* product) {
        const auto written = [&](bool narrow) {
            return Emitter(form, facts, plan, product, sizes, dialect, {options.fused_multiply_add, narrow}).run();
        };
        Source result = written(true);
        // In 32 bits because the caller vouches for the sizes, or because there is nothing to vouch for.
        return options.narrow || result.magnitudes.empty() ? result : written(false);
    };
    const Kernel joined = join_blocks(ready);
    const LoopFacts joined_facts(joined);
    const std::optional<ProductPlan> product = plan_product(joined, joined_facts);
    if (product && product->group_bytes(dialect) <= dialect.limits().group_bytes) {
        const GridPlan plan(joined, joined_facts, dialect.limits(), product->group_threads(dialect.limits()));
        return source(joined, joined_facts, plan, &*product);
    }
    const LoopFacts facts(ready);
    const GridPlan plan(ready, facts, dialect.limits());
    if (!plan.refusal().empty()) return refused(plan.refusal());
    return source(ready, facts, plan, nullptr);
}

}  // namespace topstitch::codegen
