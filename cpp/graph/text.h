// The text form of graphs, in pieces: numbers, strings, arrays and attributes, written and read.
// print.cpp and parse.cpp put them together; the grammar is described there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/graph_data.h"

namespace topstitch {

// --- Numbers: the shortest text that reads back to the same bits. NaNs other than the usual one show their bits.
std::string real_text(double value);
std::string real_text(float value);
// The whole of `text` as a number; none when it is not one, or out of range.
std::optional<double> read_double(std::string_view text);
std::optional<float> read_float(std::string_view text);

// --- Strings in double quotes; \" \\ \n \r \t and \xHH for other control characters.
std::string quoted(std::string_view text);

// --- Bytes.
std::string base64_encode(const void* data, std::size_t bytes);
std::optional<std::string> base64_decode(std::string_view text);

// --- Attributes. Arrays of up to 16 elements list them: float32(2,)[1.0, 2.5]; others show their bytes.
std::string attribute_text(const Attribute& value);

// --- Dims: "64", "?", "batch", "2*batch + 1", as Dim::str() writes them. UserError for anything else.
TOPSTITCH_API Dim dim_from_text(std::string_view text);

// --- Graphs.
std::string operation_text(const GraphData& graph, OpId id, bool with_location);
TOPSTITCH_API std::string graph_text(const GraphData& graph, bool with_locations);

}  // namespace topstitch
