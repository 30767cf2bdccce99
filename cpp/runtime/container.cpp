// Writes and reads the common part of saved files.
// See container.h.
#include "runtime/container.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>

#include "core/utf8.h"
#include "graph/op_def.h"
#include "topstitch/error.h"
#include "topstitch/version.h"

namespace topstitch {

namespace {

struct KindName {
    const char* name;  // in the file
    const char* article;
    const char* loader;
};

KindName name_of(ContainerKind kind) {
    switch (kind) {
        case ContainerKind::graph:
            return {"graph", "a graph", "Graph.load (C++: load_graph)"};
        case ContainerKind::executable:
            return {"executable", "an executable", "Executable.load (C++: load_executable)"};
        case ContainerKind::variables:
            return {"variables", "values of variables", "Graph.load_variables (C++: load_variables)"};
    }
    return {"", "", ""};
}

const std::string* find(const Metadata& metadata, const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? nullptr : &at->second;
}

void check_format(const SafetensorsFile& file, const std::string& text) {
    int format = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), format);
    const bool number = result.ec == std::errc() && result.ptr == text.data() + text.size() && format > 0;
    if (!number && result.ec != std::errc::result_out_of_range) {
        throw UserError(
            concat(file.subject(), " is damaged: its format is \"", printable(text), "\" instead of a number from 1"));
    }
    if (number && format <= container_format) return;
    const std::string* version = find(file.metadata(), metadata_key::version);
    throw UserError(concat(file.subject(), " was written by a newer topstitch",
                           version != nullptr ? concat(" (", printable(*version, 40), ")") : "", ", format ",
                           printable(text, 40), "; this one, ", TOPSTITCH_VERSION, ", reads up to ", container_format,
                           ", so install a newer one"));
}

// A name in the file for an array of a graph: that of the operation where it has one to itself.
std::string array_name(const OpNode& node, OpId id, const std::map<std::string, NDArray>& taken) {
    const auto free = [&taken](const std::string& name) { return name != "__metadata__" && !taken.contains(name); };
    if (!node.name.empty() && is_utf8(node.name) && free(node.name)) return node.name;
    std::string name = concat(node.def->name, ".", id);
    while (!free(name)) name += "_";
    return name;
}

bool is_variable(const OpNode& node) {
    return node.variable != nullptr;
}

using Locks = std::vector<std::unique_lock<std::mutex>>;

// In the order of runs (Variant::run), so that nobody waits for each other.
Locks lock_all(std::vector<Variable*> variables) {
    std::sort(variables.begin(), variables.end(), std::less<>());
    Locks locks;
    for (Variable* variable : variables) locks.emplace_back(variable->mutex);
    return locks;
}

}  // namespace

Container::Container(ContainerKind kind) {
    metadata[metadata_key::format] = std::to_string(container_format);
    metadata[metadata_key::kind] = name_of(kind).name;
    metadata[metadata_key::version] = TOPSTITCH_VERSION;
}

void Container::add_graph(const GraphData& graph, const std::vector<OpId>& ids) {
    std::vector<OpId> variables;
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(variables),
                 [&graph](OpId id) { return is_variable(graph.find(id)); });
    std::map<OpId, NDArray> values = variable_values(graph, variables);
    const StoreArray store = [&](const OpNode& node, OpId id, const NDArray& array) -> std::optional<std::string> {
        if (!is_variable(node) && array.size() <= most_listed) return std::nullopt;
        std::string name = array_name(node, id, arrays);
        arrays.emplace(name, is_variable(node) ? values.at(id) : array);
        return name;
    };
    metadata[metadata_key::graph] = graph_text(graph, ids, store);
}

void check_kind(const SafetensorsFile& file, ContainerKind kind, bool plain) {
    const KindName wanted = name_of(kind);
    const std::string* format = find(file.metadata(), metadata_key::format);
    if (format == nullptr) {
        if (plain) return;
        throw UserError(concat(file.subject(), " holds arrays only, and not ", wanted.article,
                               "; read them with load_arrays, or with load_variables into a graph"));
    }
    check_format(file, *format);
    const std::string& found = required(file, metadata_key::kind);
    if (found == wanted.name) return;
    for (const ContainerKind other : {ContainerKind::graph, ContainerKind::executable, ContainerKind::variables}) {
        if (found != name_of(other).name) continue;
        throw UserError(concat(file.subject(), " holds ", name_of(other).article, ", not ", wanted.article,
                               "; load it with ", name_of(other).loader));
    }
    throw UserError(concat(file.subject(), " is damaged: it is of the unknown kind \"", printable(found), "\""));
}

const std::string& required(const SafetensorsFile& file, const char* key) {
    const std::string* value = find(file.metadata(), key);
    if (value == nullptr) throw UserError(concat(file.subject(), " is damaged: its metadata has no \"", key, "\""));
    return *value;
}

ParsedGraph read_graph(const SafetensorsFile& file) {
    std::set<std::string> used;
    const FetchArray fetch = [&](const std::string& name) {
        const auto found = file.arrays().find(name);
        if (found == file.arrays().end()) {
            throw UserError(concat("the file has no array \"", printable(name), "\""));
        }
        // Otherwise a small file could ask for much memory.
        if (!used.insert(name).second) throw UserError(concat("the array \"", printable(name), "\" is used twice"));
        return file.read(found->second);
    };
    const std::string& text = required(file, metadata_key::graph);
    ParsedGraph parsed;
    try {
        parsed = parse_graph(text, fetch);
    } catch (const UserError& error) {
        throw UserError(concat(file.subject(), " holds a graph that cannot be read: ", error.what()));
    }
    for (const auto& [name, array] : file.arrays()) {
        if (used.contains(name)) continue;
        throw UserError(
            concat(file.subject(), " is damaged: its graph does not use the array \"", printable(name), "\""));
    }
    return parsed;
}

std::map<OpId, NDArray> variable_values(const GraphData& graph, const std::vector<OpId>& ids) {
    std::vector<Variable*> variables;
    for (const OpId id : ids) variables.push_back(graph.find(id).variable.get());
    std::map<OpId, NDArray> values;
    const Locks locks = lock_all(variables);
    for (std::size_t k = 0; k < ids.size(); ++k) values.emplace(ids[k], variables[k]->value.copy());
    return values;
}

void set_variable_values(const GraphData& graph, std::map<OpId, NDArray> values) {
    std::vector<Variable*> variables;
    for (const auto& [id, value] : values) variables.push_back(graph.find(id).variable.get());
    const Locks locks = lock_all(variables);
    auto variable = variables.begin();
    for (auto& [id, value] : values) (*variable++)->value = std::move(value);
}

}  // namespace topstitch
