// Saving and loading: graphs, executables, values of variables and plain arrays, each in one safetensors file.
// docs/saving.md describes the files. Nothing in a file is run when it is loaded.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "topstitch/executable.h"
#include "topstitch/export.h"
#include "topstitch/graph.h"
#include "topstitch/ndarray.h"

namespace topstitch {

// All of these functions: IoError, with the system's reason, when a file cannot be read or written. Saving replaces the
// file as a whole; when it fails, the old one is as it was. Loading checks everything in the file: UserError with the
// reason when it is damaged, is something else, or was written by a newer topstitch.

// The graph with the present values of its variables, which are those of one moment between runs.
TOPSTITCH_API void save(const Graph& graph, const std::filesystem::path& path);
TOPSTITCH_API Graph load_graph(const std::filesystem::path& path);

// What the executable needs of its graph, the present values of variables, its feeds, targets, operations and options,
// and the shapes that it has been compiled for. `metadata` is kept beside it; its keys must not begin with
// "topstitch.".
TOPSTITCH_API void save(const Executable& executable, const std::filesystem::path& path,
                        const std::map<std::string, std::string>& metadata = {});
// Compiled again for this machine, for `device` and for the same shapes. It has a graph and variables of its own.
// `metadata`, when given, becomes what was kept beside it.
TOPSTITCH_API Executable load_executable(const std::filesystem::path& path, const Device& device = {},
                                         std::map<std::string, std::string>* metadata = nullptr);

// The values of all variables, by name. UserError when a variable has no name, or two have the same.
TOPSTITCH_API void save_variables(const Graph& graph, const std::filesystem::path& path);
// The other way round, also from a safetensors file of another program. All or nothing: UserError that lists the names
// that are missing in the file, that are unknown in the graph, and that differ in dtype or shape, before any variable
// changes.
TOPSTITCH_API void load_variables(const Graph& graph, const std::filesystem::path& path);

// Plain safetensors files. Arrays are in memory of their own; metadata of the file is left out.
TOPSTITCH_API void save_arrays(const std::map<std::string, NDArray>& arrays, const std::filesystem::path& path);
TOPSTITCH_API std::map<std::string, NDArray> load_arrays(const std::filesystem::path& path);

}  // namespace topstitch
