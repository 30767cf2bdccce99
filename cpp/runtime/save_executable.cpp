// Saving an executable as the part of its graph that it needs with its signature, and compiling that again.
// Machine code is not saved: it would fit one kind of processor, and could do anything when loaded.
#include <algorithm>
#include <charconv>
#include <set>

#include "core/settings.h"
#include "core/utf8.h"
#include "graph/text_reader.h"
#include "passes/specialize.h"
#include "runtime/container.h"
#include "runtime/executable_impl.h"
#include "topstitch/serialize.h"

namespace topstitch {

namespace {

// --- Options: one line "name=value" for each that is not the default. A new option is a line here. The device is not
// among them: a file is for any.

template <typename Options, typename Visit>
void each_option(Options& options, const Visit& visit) {
    visit("stitch", options.stitch);
    visit("threads", options.threads);
    visit("interpret", options.interpret);
    visit("optimization_level", options.optimization_level);
    visit("deterministic", options.deterministic);
    visit("math", options.math);
}

std::string value_text(bool value) {
    return value ? "true" : "false";
}

std::string value_text(int value) {
    return std::to_string(value);
}

std::string value_text(MathMode value) {
    return value == MathMode::strict ? "strict" : "standard";
}

bool read_value(const std::string& text, MathMode& value) {
    value = text == "strict" ? MathMode::strict : MathMode::standard;
    return value_text(value) == text;
}

bool read_value(const std::string& text, bool& value) {
    value = text == "true";
    return value || text == "false";
}

bool read_value(const std::string& text, int& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size() && value >= 0;
}

std::string options_text(const CompileOptions& options) {
    std::map<std::string, std::string> defaults;
    const CompileOptions usual;
    each_option(usual, [&](const char* name, const auto& value) { defaults[name] = value_text(value); });
    std::string text;
    each_option(options, [&](const char* name, const auto& value) {
        if (value_text(value) != defaults[name]) text += concat(name, "=", value_text(value), "\n");
    });
    return text;
}

CompileOptions read_options(std::string_view text) {
    std::map<std::string, std::string> given;
    while (!text.empty()) {
        const std::string line(text.substr(0, text.find('\n')));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::size_t equals = std::min(line.find('='), line.size());
        const bool fresh = given.emplace(line.substr(0, equals), line.substr(std::min(equals + 1, line.size()))).second;
        if (!fresh) throw UserError(concat("the option \"", printable(line.substr(0, equals)), "\" is there twice"));
    }
    CompileOptions options;
    each_option(options, [&](const char* name, auto& value) {
        const auto found = given.find(name);
        if (found == given.end()) return;
        if (!read_value(found->second, value)) {
            throw UserError(concat("the option ", name, " cannot be \"", printable(found->second), "\""));
        }
        given.erase(found);
    });
    if (!given.empty()) {
        throw UserError(
            concat("the option \"", printable(given.begin()->first), "\" is not known; a newer topstitch may have it"));
    }
    return options;
}

// --- References, written as in the text of the graph: %12, or %14.1 for one of several results.

std::string reference(TensorRef ref) {
    return concat("%", ref.op, ".", ref.output);
}

// The lines of one key of the metadata.
class SignatureReader {
public:
    SignatureReader(const std::string& text, const ParsedGraph& parsed) : reader_(text), parsed_(parsed) {}

    // Calls `read` at the beginning of each line, of which it has to read all.
    template <typename Read>
    void each_line(const Read& read) {
        for (reader_.skip_empty_lines(); !reader_.at_end(); reader_.skip_empty_lines()) {
            read();
            reader_.skip_blanks();
            if (!reader_.at_line_end()) {
                reader_.fail(concat("expected the end of the line, but found ", reader_.found()));
            }
        }
    }
    TextReader& reader() { return reader_; }
    Operation operation() {
        reader_.expect("%");
        const std::int64_t number = reader_.integer("the number of an operation");
        const auto found = parsed_.operations.find(number);
        if (found == parsed_.operations.end()) reader_.fail(concat("the graph has no operation %", number));
        return Operation(parsed_.graph.data(), found->second);
    }
    Tensor tensor() {
        const std::vector<Tensor> outputs = operation().outputs();
        reader_.expect(".");
        const std::int64_t output = reader_.integer("the position of a result");
        if (output < 0 || output >= static_cast<std::int64_t>(outputs.size())) {
            reader_.fail(concat("result ", output, " is asked for, but the operation has ", outputs.size()));
        }
        return outputs[static_cast<std::size_t>(output)];
    }

private:
    TextReader reader_;
    const ParsedGraph& parsed_;
};

template <typename Read>
void each_line(const SafetensorsFile& file, const char* key, const ParsedGraph& parsed, const Read& read) {
    SignatureReader lines(required(file, key), parsed);
    try {
        lines.each_line([&] { read(lines); });
    } catch (const UserError& error) {
        std::string_view message = error.what();
        constexpr std::string_view start = "graph text";  // of messages with a line and a column
        if (message.starts_with(start)) message.remove_prefix(start.size());
        throw UserError(concat(file.subject(), " is damaged: ", key, message));
    }
}

std::string shapes_text(const std::vector<std::vector<Sizes>>& compiled) {
    std::string text;
    for (const std::vector<Sizes>& shapes : compiled) {
        std::string line;
        for (const Sizes& shape : shapes) line += (line.empty() ? "" : ", ") + sizes_str(shape);
        text += "[" + line + "]\n";
    }
    return text;
}

std::vector<Sizes> read_shapes(TextReader& reader, std::size_t feeds) {
    std::vector<Sizes> shapes;
    reader.expect("[");
    while (!reader.accept("]")) {
        if (!shapes.empty()) reader.expect(",");
        const auto sizes = reader.shape().sizes();
        if (!sizes) reader.fail("a shape that was compiled for must be known");
        shapes.push_back(*sizes);
    }
    if (shapes.size() != feeds) reader.fail(concat("there are ", shapes.size(), " shapes for ", feeds, " feeds"));
    return shapes;
}

struct SavedSignature {
    FeedTypes feeds;
    std::vector<Tensor> targets;
    std::vector<Operation> operations;
    CompileOptions options;
    std::vector<std::vector<Sizes>> compiled;  // shapes of the feeds, the most recently used first
};

SavedSignature read_signature(const SafetensorsFile& file, const ParsedGraph& parsed) {
    SavedSignature signature;
    std::set<OpId> seen;
    each_line(file, metadata_key::feeds, parsed, [&](SignatureReader& line) {
        const Tensor tensor = line.tensor();
        if (!seen.insert(tensor.ref().op).second) line.reader().fail("a placeholder is fed twice");
        line.reader().expect(":");
        const DType dtype = line.reader().dtype();
        signature.feeds.emplace_back(tensor, ShapedType{line.reader().shape(), dtype});
    });
    each_line(file, metadata_key::targets, parsed,
              [&](SignatureReader& line) { signature.targets.push_back(line.tensor()); });
    each_line(file, metadata_key::operations, parsed,
              [&](SignatureReader& line) { signature.operations.push_back(line.operation()); });
    each_line(file, metadata_key::shapes, parsed, [&](SignatureReader& line) {
        signature.compiled.push_back(read_shapes(line.reader(), signature.feeds.size()));
    });
    const std::string& options = required(file, metadata_key::options);
    try {
        signature.options = read_options(options);
    } catch (const UserError& error) { throw UserError(concat(file.subject(), " cannot be compiled: ", error.what())); }
    return signature;
}

// With the checks of compile(), which also compiles for the types of the feeds.
Executable compile_again(const Graph& graph, const SavedSignature& signature) {
    std::vector<Tensor> feeds;
    bool ranked = true;
    bool declared = true;
    for (const auto& [feed, type] : signature.feeds) {
        feeds.push_back(feed);
        ranked = ranked && type.shape.has_rank();
        declared = declared && type.dtype == feed.dtype() && type.shape.str() == feed.shape().str();
    }
    Executable executable;
    if (ranked) {
        executable = compile(graph, signature.feeds, signature.targets, signature.operations, signature.options);
    } else if (declared) {  // compile() wants ranks
        executable = find_executable(graph, feeds, signature.targets, signature.operations, signature.options);
    } else {
        throw UserError("a feed has no rank, and not all are of the type of their placeholder");
    }
    // More variants than are kept would only push each other out.
    const std::size_t limit = setting_count(Setting::executable_cache_entries);
    for (std::size_t k = std::min(signature.compiled.size(), limit); k-- > 0;) {
        std::vector<std::int64_t> symbols;
        executable.impl()->variant_for(*graph.data(), packed_layouts(signature.compiled[k]), symbols);
    }
    return executable;
}

}  // namespace

void save(const Executable& executable, const std::filesystem::path& path,
          const std::map<std::string, std::string>& metadata) {
    if (!executable) throw UserError("[save] an empty Executable was given; compile one");
    Container container(ContainerKind::executable);
    for (const auto& [key, value] : metadata) {
        if (key.starts_with(metadata_key::prefix)) {
            throw UserError(concat("[save] the metadata key \"", printable(key), "\" begins with \"",
                                   metadata_key::prefix, "\", which topstitch keeps for itself; choose another"));
        }
        container.metadata[key] = value;
    }
    const ExecutableImpl& impl = *executable.impl();
    const Signature& signature = impl.signature();
    const GraphData& graph = *executable.graph().data();
    std::vector<TensorRef> needed = signature.targets;
    needed.insert(needed.end(), signature.feeds.begin(), signature.feeds.end());
    std::vector<OpId> ids;
    {
        const std::lock_guard lock(graph.mutex);
        const std::vector<bool> kept = reachable(graph, needed, signature.operations);
        for (std::size_t id = 0; id < kept.size(); ++id) {
            if (kept[id]) ids.push_back(static_cast<OpId>(id));
        }
    }
    container.add_graph(graph, ids);
    std::string feeds;
    for (std::size_t k = 0; k < signature.feeds.size(); ++k) {
        feeds += concat(reference(signature.feeds[k]), " : ", signature.feed_types[k].str(), "\n");
    }
    std::string targets;
    for (const TensorRef target : signature.targets) targets += reference(target) + "\n";
    std::string operations;
    for (const OpId operation : signature.operations) operations += concat("%", operation, "\n");
    container.metadata[metadata_key::feeds] = feeds;
    container.metadata[metadata_key::targets] = targets;
    container.metadata[metadata_key::operations] = operations;
    container.metadata[metadata_key::options] = options_text(signature.options);
    container.metadata[metadata_key::shapes] = shapes_text(impl.compiled_shapes());
    write_safetensors(path, "save", container.arrays, container.metadata);
}

Executable load_executable(const std::filesystem::path& path, const Device& device,
                           std::map<std::string, std::string>* metadata) {
    const SafetensorsFile file(path, "load_executable");
    check_kind(file, ContainerKind::executable);
    const ParsedGraph parsed = read_graph(file);
    SavedSignature signature = read_signature(file, parsed);
    signature.options.device = device;
    Executable executable;
    try {
        executable = compile_again(parsed.graph, signature);
    } catch (const UserError& error) {
        throw UserError(concat(file.subject(), " holds an executable that cannot be compiled: ", error.what()));
    }
    if (metadata != nullptr) {
        metadata->clear();
        for (const auto& [key, value] : file.metadata()) {
            if (!key.starts_with(metadata_key::prefix)) metadata->emplace(key, value);
        }
    }
    return executable;
}

}  // namespace topstitch
