// Saving and loading graphs, the values of their variables, and plain arrays.
// Executables are in save_executable.cpp; the container itself in container.cpp.
#include <numeric>

#include "core/utf8.h"
#include "runtime/container.h"
#include "topstitch/serialize.h"

namespace topstitch {

namespace {

constexpr std::size_t most_listed_names = 10;

// The variables of a graph by their names, which have to tell them apart.
std::map<std::string, Tensor> variables_by_name(const Graph& graph, const char* what) {
    std::map<std::string, Tensor> variables;
    for (const Tensor& variable : graph.variables()) {
        const std::string& name = variable.name();
        const SourceLocation location = variable.operation().location();
        const std::string created = location.known() ? concat(" (created at ", location.str(), ")") : "";
        if (name.empty()) {
            throw UserError(concat("[", what, "] the variable %", variable.ref().op, " : ", variable.type().str(),
                                   created,
                                   " has no name, which it needs in a file; give it one: "
                                   "graph.variable(value, name=\"w\")"));
        }
        if (!variables.emplace(name, variable).second) {
            throw UserError(concat("[", what, "] two variables are called \"", printable(name), "\"", created,
                                   "; give each a name of its own: graph.variable(value, name=\"w\")"));
        }
    }
    return variables;
}

// "3 things: a, b, c"
class NameList {
public:
    void add(const std::string& text) {
        if (++count_ <= most_listed_names) text_ += (count_ > 1 ? ", " : "") + text;
    }
    std::string str(const char* what) const {
        if (count_ == 0) return "";
        return concat("; ", what, ": ", text_,
                      count_ > most_listed_names ? concat(" and ", count_ - most_listed_names, " more") : "");
    }

private:
    std::string text_;
    std::size_t count_ = 0;
};

}  // namespace

void save(const Graph& graph, const std::filesystem::path& path) {
    std::vector<OpId> ids(graph.data()->size());
    std::iota(ids.begin(), ids.end(), 0);
    Container container(ContainerKind::graph);
    container.add_graph(*graph.data(), ids);
    write_safetensors(path, "save", container.arrays, container.metadata);
}

Graph load_graph(const std::filesystem::path& path) {
    const SafetensorsFile file(path, "load_graph");
    check_kind(file, ContainerKind::graph);
    return read_graph(file).graph;
}

void save_variables(const Graph& graph, const std::filesystem::path& path) {
    const std::map<std::string, Tensor> variables = variables_by_name(graph, "save_variables");
    std::vector<OpId> ids;
    for (const auto& [name, variable] : variables) ids.push_back(variable.ref().op);
    std::map<OpId, NDArray> values = variable_values(*graph.data(), ids);
    Container container(ContainerKind::variables);
    for (const auto& [name, variable] : variables) container.arrays.emplace(name, values.at(variable.ref().op));
    write_safetensors(path, "save_variables", container.arrays, container.metadata);
}

void load_variables(const Graph& graph, const std::filesystem::path& path) {
    const std::map<std::string, Tensor> variables = variables_by_name(graph, "load_variables");
    const SafetensorsFile file(path, "load_variables");
    check_kind(file, ContainerKind::variables, true);
    NameList missing;
    NameList unexpected;
    NameList different;
    for (const auto& [name, variable] : variables) {
        const auto found = file.arrays().find(name);
        if (found == file.arrays().end()) {
            missing.add(printable(name));
            continue;
        }
        const TensorType stored{found->second.dtype, Shape::of(found->second.shape)};
        if (stored == variable.type()) continue;
        different.add(concat(printable(name), " is ", variable.type().str(), " and in the file ", stored.str()));
    }
    for (const auto& [name, array] : file.arrays()) {
        if (!variables.contains(name)) unexpected.add(printable(name));
    }
    const std::string problems =
        missing.str("missing in the file") + unexpected.str("unknown in the graph") + different.str("of another type");
    if (!problems.empty()) {
        throw UserError(
            concat(file.subject(), " does not fit the variables of the graph, and none was changed", problems));
    }
    std::map<OpId, NDArray> values;
    for (const auto& [name, variable] : variables) {
        values.emplace(variable.ref().op, file.read(file.arrays().at(name)));
    }
    set_variable_values(*graph.data(), std::move(values));
}

void save_arrays(const std::map<std::string, NDArray>& arrays, const std::filesystem::path& path) {
    write_safetensors(path, "save_arrays", arrays, {});
}

std::map<std::string, NDArray> load_arrays(const std::filesystem::path& path) {
    const SafetensorsFile file(path, "load_arrays");
    std::map<std::string, NDArray> arrays;
    for (const auto& [name, array] : file.arrays()) arrays.emplace(name, file.read(array));
    return arrays;
}

}  // namespace topstitch
