// Checks what the user passed, finds or makes the executable for it, and compiles ahead of time.
// See executable.h.
#include <algorithm>
#include <exception>
#include <map>
#include <set>

#include "core/log.h"
#include "passes/specialize.h"
#include "runtime/executable_impl.h"
#include "topstitch/executable.h"

namespace topstitch {

namespace {

ExecutableCache& cache_of(GraphData& graph) {
    const std::lock_guard lock(graph.mutex);
    if (graph.executables == nullptr) graph.executables = std::make_shared<ExecutableCache>();
    return *static_cast<ExecutableCache*>(graph.executables.get());
}

std::string describe(const Tensor& tensor) {
    return tensor.name().empty() ? std::string(tensor.operation().op())
                                 : concat(tensor.operation().op(), " '", tensor.name(), "'");
}

void check_feed(const Graph& graph, const Tensor& feed) {
    if (!feed) throw UserError("[run] a feed's key is no tensor");
    if (!(feed.graph() == graph))
        throw UserError(concat("[run] the feed for ", describe(feed), " belongs to another graph"));
    if (feed.operation().op() != "placeholder") {
        throw UserError(concat(
            "[run] only placeholders can be fed, not the result of ", describe(feed),
            feed.operation().location().known() ? " (created at " + feed.operation().location().str() + ")" : ""));
    }
}

void check_wanted(const Graph& graph, const std::vector<Tensor>& targets, const std::vector<Operation>& operations) {
    if (targets.empty() && operations.empty()) throw UserError("[run] nothing to do: give targets, operations or both");
    for (const Tensor& target : targets) {
        if (!target) throw UserError("[run] a target is no tensor");
        if (!(target.graph() == graph))
            throw UserError(concat("[run] target ", describe(target), " belongs to another graph"));
    }
    for (const Operation& operation : operations) {
        if (!operation) throw UserError("[run] a target operation is no operation");
        if (!(operation.graph() == graph))
            throw UserError(concat("[run] operation ", operation.op(), " belongs to another graph"));
    }
}

std::vector<TensorRef> refs_of(const std::vector<Tensor>& tensors) {
    std::vector<TensorRef> refs;
    for (const Tensor& tensor : tensors) refs.push_back(tensor.ref());
    return refs;
}

std::vector<std::int32_t> key_of(const std::vector<Tensor>& feeds, const std::vector<Tensor>& targets,
                                 const std::vector<Operation>& operations, const CompileOptions& options) {
    const auto device = reinterpret_cast<std::uintptr_t>(&options.device.backend());
    const int flags = (options.stitch ? 1 : 0) | (options.interpret ? 2 : 0) | (options.deterministic ? 4 : 0) |
                      options.optimization_level << 8 | static_cast<int>(options.math) << 16;
    std::vector<std::int32_t> key{flags,
                                  options.threads,
                                  static_cast<std::int32_t>(device),
                                  static_cast<std::int32_t>(device >> 32),
                                  static_cast<std::int32_t>(feeds.size()),
                                  static_cast<std::int32_t>(targets.size())};
    key.reserve(key.size() + feeds.size() + 2 * targets.size() + operations.size());
    for (const Tensor& feed : feeds) key.push_back(feed.ref().op);
    for (const Tensor& target : targets) {
        key.push_back(target.ref().op);
        key.push_back(target.ref().output);
    }
    for (const Operation& operation : operations) key.push_back(operation.id());
    return key;
}

Signature make_signature(const std::vector<Tensor>& feeds, const std::vector<Tensor>& targets,
                         const std::vector<Operation>& operations, const CompileOptions& options) {
    Signature signature;
    signature.feeds = refs_of(feeds);
    for (const Tensor& feed : feeds) {
        signature.feed_types.push_back(feed.type());
        signature.feed_names.push_back(feed.name());
    }
    signature.targets = refs_of(targets);
    for (const Operation& operation : operations) signature.operations.push_back(operation.id());
    signature.options = options;
    return signature;
}

// Sizes that stand for dynamic dims when there are no arrays to look at: the same for the same axis, so that
// batch dims of several feeds count as equal, and another for each name; expressions over names follow from these.
class StandInSizes {
public:
    // `equal`: one size for all dims without a name, whatever their axis.
    explicit StandInSizes(bool equal) : equal_(equal) {}

    std::int64_t of(const Dim& dim, int axis) {
        if (dim.is_known()) return dim.value();
        if (dim.is_unknown()) return of_key(equal_ ? "a" : concat('a', axis));
        return std::max<std::int64_t>(dim.evaluate([this](std::string_view name) { return of_name(name); }), 0);
    }
    // A named dim that is narrowed to a number or to another name: both stand for the same size.
    void narrow(const Dim& declared, const Dim& given) {
        if (!declared.is_symbol() || given.is_unknown()) return;
        if (given.is_known()) sizes_[concat('n', declared.symbol_name())] = given.value();
        if (given.is_symbol()) sizes_[concat('n', given.symbol_name())] = of_name(declared.symbol_name());
    }

private:
    std::int64_t of_name(std::string_view name) { return of_key(concat('n', name)); }
    std::int64_t of_key(const std::string& key) {
        return sizes_.emplace(key, 1009 + 14 * static_cast<std::int64_t>(sizes_.size())).first->second;
    }
    bool equal_;
    std::map<std::string, std::int64_t> sizes_;
};

// The type that was given, where a dim left open keeps the name that was declared.
TensorType narrowed(const TensorType& declared, const ShapedType& given) {
    std::vector<Dim> dims = given.shape.dims();
    for (std::size_t axis = 0; declared.shape.has_rank() && axis < dims.size(); ++axis) {
        if (dims[axis].is_unknown()) dims[axis] = declared.shape[static_cast<int>(axis)];
    }
    return {given.dtype, Shape(std::move(dims))};
}

// Infers the types of what is wanted from those of the feeds, with unknown dims as they are: a mistake that does not
// depend on them is found here.
void check_types(const GraphData& graph, const Signature& signature) {
    const std::lock_guard lock(graph.mutex);
    const std::vector<bool> wanted = reachable(graph, signature.targets, signature.operations);
    std::map<TensorRef, TensorType> types;
    for (std::size_t k = 0; k < signature.feeds.size(); ++k) types[signature.feeds[k]] = signature.feed_types[k];
    for (std::size_t k = 0; k < graph.ops.size(); ++k) {
        const OpNode& node = graph.ops[k];
        if (!wanted[k]) continue;
        if (node.def->name == "placeholder") {
            if (!types.contains({static_cast<OpId>(k), 0})) throw not_fed(node, static_cast<OpId>(k));
            continue;
        }
        std::vector<TensorType> outputs = node.outputs;
        if (!std::holds_alternative<BuiltinBody>(node.def->body)) {
            std::vector<TensorType> inputs;
            for (TensorRef input : node.inputs) inputs.push_back(types.at(input));
            outputs = infer_types(*node.def, inputs, node.attributes, &node.location);
        }
        for (std::size_t output = 0; output < outputs.size(); ++output) {
            types[{static_cast<OpId>(k), static_cast<int>(output)}] = outputs[output];
        }
    }
}

void check_narrower(const Tensor& feed, const ShapedType& type) {
    const TensorType& declared = feed.type();
    const TensorType given{type.dtype, type.shape};
    bool fits = type.dtype == declared.dtype && type.shape.has_rank() &&
                (!declared.shape.has_rank() || declared.shape.rank() == type.shape.rank());
    for (int axis = 0; fits && declared.shape.has_rank() && axis < type.shape.rank(); ++axis) {
        fits = !declared.shape[axis].is_known() || type.shape[axis] == declared.shape[axis];
    }
    if (!fits) {
        throw UserError(concat("[compile] ", describe(feed), " is declared as ", declared.str(),
                               ", and cannot be compiled for ", given.str()));
    }
}

}  // namespace

Executable find_executable(const Graph& graph, const std::vector<Tensor>& feeds, const std::vector<Tensor>& targets,
                           const std::vector<Operation>& operations, const CompileOptions& options) {
    std::shared_ptr<ExecutableImpl> impl =
        cache_of(*graph.data()).find_or_add(key_of(feeds, targets, operations, options), [&] {
            std::set<Tensor, bool (*)(const Tensor&, const Tensor&)> seen(
                [](const Tensor& a, const Tensor& b) { return a.ref() < b.ref(); });
            for (const Tensor& feed : feeds) {
                check_feed(graph, feed);
                if (!seen.insert(feed).second) throw UserError(concat("[run] ", describe(feed), " is fed twice"));
            }
            check_wanted(graph, targets, operations);
            check_options(options);
            return make_signature(feeds, targets, operations, options);
        });
    return Executable(graph.data(), std::move(impl));
}

namespace {

// Of made-up sizes where they are not known, so that the variant that runs will want is there.
void compile_for(const GraphData& graph, ExecutableImpl& impl, std::span<const TensorType> types, bool equal) {
    StandInSizes stand_in(equal);
    for (std::size_t k = 0; k < types.size(); ++k) {
        const Shape& declared = graph.find(impl.signature().feeds[k].op).outputs.front().shape;
        for (int axis = 0; declared.has_rank() && axis < declared.rank(); ++axis)
            stand_in.narrow(declared[axis], types[k].shape[axis]);
    }
    std::vector<Sizes> shapes;
    for (const TensorType& type : types) {
        Sizes shape;
        for (int axis = 0; axis < type.shape.rank(); ++axis) shape.push_back(stand_in.of(type.shape[axis], axis));
        shapes.push_back(std::move(shape));
    }
    std::vector<std::int64_t> symbols;
    impl.variant_for(graph, packed_layouts(shapes), symbols);
}

void compile_ahead(const GraphData& graph, ExecutableImpl& impl, std::span<const TensorType> types) {
    try {
        compile_for(graph, impl, types, false);
    } catch (const UserError&) {
        const std::exception_ptr first = std::current_exception();
        // Dims of different axes may have to agree, as in a product.
        try {
            compile_for(graph, impl, types, true);
        } catch (const UserError& error) {
            const auto is_known = [](const TensorType& type) { return type.shape.sizes().has_value(); };
            if (std::all_of(types.begin(), types.end(), is_known)) std::rethrow_exception(first);
            check_types(graph, impl.signature());
            // Nothing but the sizes was made up: compiled when a run brings real ones.
            if (log_enabled(LogLevel::info)) {
                log_line(LogLevel::info,
                         concat("not compiled before the first run, because the sizes are not known: ", error.what()));
            }
        }
    }
}

Executable make_executable(const Graph& graph, const FeedTypes& feeds, const std::vector<Tensor>& targets,
                           const std::vector<Operation>& operations, const CompileOptions& options) {
    check_options(options);
    std::vector<Tensor> tensors;
    for (const auto& [feed, type] : feeds) {
        check_feed(graph, feed);
        check_narrower(feed, type);
        tensors.push_back(feed);
    }
    check_wanted(graph, targets, operations);
    Signature signature = make_signature(tensors, targets, operations, options);
    for (std::size_t k = 0; k < feeds.size(); ++k)
        signature.feed_types[k] = narrowed(tensors[k].type(), feeds[k].second);
    return Executable(graph.data(), std::make_shared<ExecutableImpl>(
                                        std::move(signature), "it was compiled ahead of time, by Graph.compile"));
}

// The feeds' types narrowed by what is given, in their order.
std::vector<TensorType> specialized_types(const Executable& executable, std::span<const ShapedType> types) {
    const std::vector<Tensor> feeds = executable.feeds();
    if (types.size() != feeds.size()) {
        throw UserError(concat("[specialize] the executable takes ", feeds.size(), " inputs, but ", types.size(),
                               " types were given"));
    }
    std::vector<TensorType> narrowed_types;
    for (std::size_t k = 0; k < feeds.size(); ++k) {
        check_narrower(feeds[k], types[k]);
        narrowed_types.push_back(narrowed(executable.impl()->signature().feed_types[k], types[k]));
    }
    return narrowed_types;
}

}  // namespace

void check_options(const CompileOptions& options) {
    if (options.threads < 0)
        throw UserError(concat("[compile] threads must be 0 (the setting) or more, not ", options.threads));
    if (options.optimization_level < 0 || options.optimization_level > 1)
        throw UserError(concat("[compile] the optimization level is 0 or 1, not ", options.optimization_level));
}

Executable compile(const Graph& graph, const FeedTypes& feeds, const std::vector<Tensor>& targets,
                   const std::vector<Operation>& operations, const CompileOptions& options) {
    Executable executable = make_executable(graph, feeds, targets, operations, options);
    compile_ahead(*graph.data(), *executable.impl(), executable.impl()->signature().feed_types);
    return executable;
}

std::pair<Executable, Job> compile_async(const Graph& graph, const FeedTypes& feeds, const std::vector<Tensor>& targets,
                                         const std::vector<Operation>& operations, const CompileOptions& options) {
    Executable executable = make_executable(graph, feeds, targets, operations, options);
    Job job = perform_detached([executable] {
        compile_ahead(*executable.graph().data(), *executable.impl(), executable.impl()->signature().feed_types);
    });
    return {std::move(executable), std::move(job)};
}

void Executable::specialize(std::span<const ShapedType> types) const {
    compile_ahead(*graph_, *impl_, specialized_types(*this, types));
}

std::vector<ShapedType> Executable::output_types(std::span<const ShapedType> types) const {
    const std::vector<TensorType> feed_types = specialized_types(*this, types);
    std::vector<Sizes> shapes;
    for (const TensorType& type : feed_types) {
        const std::optional<Sizes> sizes = type.shape.sizes();
        if (!sizes) throw UserError(concat("[output_types] the type ", type.str(), " has a dim that is not a number"));
        shapes.push_back(*sizes);
    }
    std::vector<std::int64_t> symbols;
    const auto variant = impl_->variant_for(*graph_, packed_layouts(shapes), symbols);
    std::vector<ShapedType> outputs;
    for (const Sizes& shape : variant->program().result_shapes(symbols))
        outputs.push_back({Shape::of(shape), variant->program().result_dtype(outputs.size())});
    return outputs;
}

namespace {

std::pair<Executable, std::vector<NDArray>> find_for(const Graph& graph, const Feeds& feeds,
                                                     const std::vector<Tensor>& targets,
                                                     const std::vector<Operation>& operations,
                                                     const CompileOptions& options) {
    std::vector<Tensor> tensors;
    std::vector<NDArray> arrays;
    for (const auto& [feed, array] : feeds) {
        tensors.push_back(feed);
        arrays.push_back(array);
    }
    return {find_executable(graph, tensors, targets, operations, options), std::move(arrays)};
}

}  // namespace

std::vector<NDArray> run(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
                         const std::vector<Operation>& operations, const CompileOptions& options) {
    const auto [executable, arrays] = find_for(graph, feeds, targets, operations, options);
    return executable.run(arrays);
}

std::vector<NDArray> encode(const Graph& graph, CommandBuffer& commands, const Feeds& feeds,
                            const std::vector<Tensor>& targets, const std::vector<Operation>& operations,
                            const CompileOptions& options) {
    auto [executable, arrays] = find_for(graph, feeds, targets, operations, options);
    return executable.encode(commands, std::move(arrays));
}

Job run_async(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
              const std::vector<Operation>& operations, const CompileOptions& options,
              const std::optional<Queue>& queue) {
    auto [executable, arrays] = find_for(graph, feeds, targets, operations, options);
    return executable.run_async(std::move(arrays), {}, queue);
}

}  // namespace topstitch
