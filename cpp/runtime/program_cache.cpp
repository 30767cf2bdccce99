// The key of a program: its operations with their names, its types, state and results, the options and the device.
// Names count because reports show them; places in the user's code are told apart, but not which they are.
#include "runtime/program_cache.h"

#include <map>
#include <optional>

#include "core/settings.h"
#include "graph/function.h"
#include "graph/hash.h"

namespace topstitch {

namespace {

void add_program(Hash128& hash, const Program& program) {
    std::map<std::string, std::uint64_t> places;
    for (const OpNode& node : program.graph->ops) {
        add_operation(hash, node);
        for (const TensorType& type : node.outputs) hash.add(std::string_view(type.str()));
    }
    each_operation(*program.graph, [&](const OpNode& node) {
        hash.add(std::string_view(node.name));
        hash.add(static_cast<std::uint64_t>(node.location.known()));
        hash.add(places.emplace(node.location.str(), places.size()).first->second);
    });
    for (TensorRef feed : program.feeds) add_ref(hash, feed);
    hash.add(static_cast<std::uint64_t>(program.states.size()));
    for (const Program::State& state : program.states) {
        add_ref(hash, state.before);
        add_ref(hash, state.after);
        hash.add(static_cast<std::uint64_t>(state.assigned));
    }
    for (TensorRef result : program.results) add_ref(hash, result);
    for (const std::optional<Layout>& layout : program.layouts) {
        hash.add(static_cast<std::uint64_t>(layout.has_value()));
        if (!layout) continue;
        hash.add(std::string_view(layout->strides.str()));
        for (const std::int64_t axis : layout->reversed) hash.add(static_cast<std::uint64_t>(axis));
    }
    for (const DimEquality& equality : program.assumptions) {
        hash.add(std::string_view(equality.a.str()));
        hash.add(std::string_view(equality.b.str()));
    }
}

void add_target(Hash128& hash, const CompileOptions& options, const DeviceBackend& device) {
    const stitch::Machine machine = device.machine();
    hash.add(std::string_view(device.info().name));
    for (const std::int64_t number :
         {std::int64_t{options.stitch}, std::int64_t{options.threads}, std::int64_t{options.optimization_level},
          std::int64_t{options.deterministic}, static_cast<std::int64_t>(options.math), std::int64_t{machine.threads},
          std::int64_t{machine.vector_bytes}}) {
        hash.add(static_cast<std::uint64_t>(number));
    }
}

// Programs are kept after their graphs are gone, but not large arrays with them.
constexpr std::size_t max_constant_bytes = std::size_t{1} << 20;

using Programs = SharedCache<std::string, CompiledProgram>;

// Never destroyed: programs may be in use while the process ends.
Programs& programs() {
    static auto* cache = new Programs([] { return setting_count(Setting::executable_cache_entries); });
    return *cache;
}

std::vector<std::int64_t> values_of(const CompiledProgram::Hints& hints) {
    std::vector<std::int64_t> values;
    for (const auto& [name, value] : hints) values.push_back(value);
    return values;
}

}  // namespace

FoundProgram find_or_compile(Program program, const CompiledProgram::Hints& hints, const CompileOptions& options,
                             DeviceBackend& device) {
    Hash128 hash;
    add_program(hash, program);
    add_target(hash, options, device);
    for (const auto& [name, value] : hints) hash.add(std::string_view(name));
    FoundProgram result;
    const auto find = [&] {
        const std::string key = hash.hex();
        result.program = programs().get(
            key, [&] { return std::make_shared<const CompiledProgram>(program, hints, options, device); },
            &result.found);
        if (result.program->constant_bytes() > max_constant_bytes) programs().erase(key);
    };
    find();
    if (result.found && !result.program->accepts(values_of(hints))) {
        // Found for sizes that are related in another way: these have an entry of their own.
        for (const std::int64_t value : values_of(hints)) hash.add(static_cast<std::uint64_t>(value));
        find();
    }
    return result;
}

CacheStats program_cache_stats() {
    return programs().stats();
}

void clear_program_cache() {
    programs().clear();
}

}  // namespace topstitch
