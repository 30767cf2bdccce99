// What the files of save() have in common: a version, a kind, a graph as text, and its arrays beside it.
// docs/saving.md is the description for users.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/text.h"
#include "io/safetensors.h"

namespace topstitch {

// Raise it when older versions of topstitch could not read the files any more.
inline constexpr int container_format = 1;

namespace metadata_key {
inline constexpr const char* prefix = "topstitch.";  // of all of ours
inline constexpr const char* format = "topstitch.format";
inline constexpr const char* kind = "topstitch.kind";
inline constexpr const char* version = "topstitch.version";
inline constexpr const char* graph = "topstitch.graph";
inline constexpr const char* feeds = "topstitch.feeds";
inline constexpr const char* targets = "topstitch.targets";
inline constexpr const char* operations = "topstitch.operations";
inline constexpr const char* options = "topstitch.options";
inline constexpr const char* shapes = "topstitch.shapes";
}  // namespace metadata_key

enum class ContainerKind { graph, executable, variables };

struct Container {
    explicit Container(ContainerKind kind);

    // These operations, which are in creation order and hold all that they refer to, with the present values of their
    // variables.
    void add_graph(const GraphData& graph, const std::vector<OpId>& ids);

    Metadata metadata;
    std::map<std::string, NDArray> arrays;
};

// UserError when the file is of another kind or from a newer version. With `plain`, one that does not come from
// topstitch at all is accepted.
void check_kind(const SafetensorsFile& file, ContainerKind kind, bool plain = false);
// UserError when it is missing.
const std::string& required(const SafetensorsFile& file, const char* key);
// The graph in the file; the graph refers to each of its arrays once.
ParsedGraph read_graph(const SafetensorsFile& file);

// The values of variables at one moment between runs.
std::map<OpId, NDArray> variable_values(const GraphData& graph, const std::vector<OpId>& ids);
// Their replacement, seen by runs as a whole. The arrays are not copied.
void set_variable_values(const GraphData& graph, std::map<OpId, NDArray> values);

}  // namespace topstitch
