// The text form of graphs, in pieces: numbers, strings, arrays and attributes, written and read.
// print.cpp and parse.cpp put them together; the grammar is described there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph_data.h"

namespace topstitch {

// --- Numbers: the shortest text that reads back to the same bits. NaNs other than the usual one show their bits.
std::string real_text(double value);
std::string real_text(float value);
// The whole of `text` as a number; none when it is not one, or out of range.
std::optional<double> read_double(std::string_view text);
std::optional<float> read_float(std::string_view text);

// --- Strings in double quotes; \" \\ \n \r \t and \xHH for other control characters and bytes that are no UTF-8.
std::string quoted(std::string_view text);

// --- Bytes.
std::string base64_encode(const void* data, std::size_t bytes);
std::optional<std::string> base64_decode(std::string_view text);

// --- Attributes. Arrays of up to most_listed elements list them: float32(2,)[1.0, 2.5]; others show their bytes.
inline constexpr std::int64_t most_listed = 16;
std::string attribute_text(const Attribute& value);  // of any kind but a function
// What a function is called by the text before the lines of its operations; see print.cpp.
inline constexpr std::string_view function_keyword = "function";

// --- Dims: "64", "?", "batch", "2*batch + 1", as Dim::str() writes them. UserError for anything else.
TOPSTITCH_API Dim dim_from_text(std::string_view text);

// --- Arrays that are kept outside of the text, under a name of their own: float32(64, 10)external"w".
// The name under which the array, an attribute of operation `node`, is kept; none to have it in the text.
using StoreArray = std::function<std::optional<std::string>(const OpNode& node, OpId id, const NDArray& array)>;
// The array that is kept under `name`; UserError when there is none.
using FetchArray = std::function<NDArray(const std::string& name)>;

// --- Graphs.
std::string operation_text(const GraphData& graph, OpId id, bool with_location, const StoreArray& store = nullptr);
TOPSTITCH_API std::string graph_text(const GraphData& graph, bool with_locations);
// Only these operations, which are in creation order and hold all that they refer to.
TOPSTITCH_API std::string graph_text(const GraphData& graph, const std::vector<OpId>& operations,
                                     const StoreArray& store);

struct ParsedGraph {
    Graph graph;
    std::unordered_map<std::int64_t, OpId> operations;  // by their number in the text
};
TOPSTITCH_API ParsedGraph parse_graph(std::string_view text, const FetchArray& fetch);

}  // namespace topstitch
