// Reads the text that print.cpp writes, operation by operation through apply(), so that everything is checked again.
// Errors give line and column; no text can do harm.
#include <set>
#include <unordered_map>
#include <utility>

#include "graph/apply.h"
#include "graph/dims.h"
#include "graph/function.h"
#include "graph/suggest.h"
#include "graph/text.h"
#include "graph/text_reader.h"

namespace topstitch {

namespace {

class Parser {
public:
    Parser(std::string_view text, FetchArray fetch) : reader_(text, std::move(fetch)) {}

    ParsedGraph parse() {
        reader_.skip_empty_lines();
        const TextReader::Place start = reader_.place();
        if (!reader_.accept("topstitch graph")) {
            TextReader::fail_at(start, "a graph begins with the line 'topstitch graph 1'");
        }
        const std::int64_t version = reader_.integer("the version of the format");
        if (version != 1) reader_.fail(concat("format ", version, " is not known; this version of topstitch reads 1"));
        end_line();
        while (!reader_.at_end()) {
            located_operation();
            end_line();
        }
        return {Graph(graph_), std::move(ids_)};
    }

private:
    // function(%0, %1) {
    // ...
    // } returns(%2)
    FunctionPtr function() {
        const TextReader::Place start = reader_.place();
        reader_.expect(function_keyword);
        if (++depth_ > deepest_function)
            TextReader::fail_at(start, concat("functions may lie in each other ", deepest_function, " deep at most"));
        const auto result = std::make_shared<Function>();
        result->graph = std::make_shared<GraphData>();
        // The lines inside number their operations anew.
        const auto outer_graph = std::exchange(graph_, result->graph);
        auto outer_ids = std::exchange(ids_, {});
        const std::vector<std::int64_t> parameters = numbers();
        reader_.expect("{");
        end_line();
        while (!reader_.next_is('}')) {
            located_operation();
            end_line();
        }
        reader_.expect("}");
        for (const std::int64_t number : parameters) {
            const auto found = ids_.find(number);
            if (found == ids_.end() || graph_->op(found->second).def->name != "placeholder")
                TextReader::fail_at(start, concat("the parameter %", number, " is not a placeholder of the function"));
            result->parameters.push_back({found->second, 0});
        }
        check_function(start, *result);
        reader_.expect("returns");
        reader_.expect("(");
        while (!reader_.accept(")")) {
            if (!result->results.empty()) reader_.expect(",");
            result->results.push_back(tensor().ref());
        }
        graph_->sealed = true;
        graph_ = outer_graph;
        ids_ = std::move(outer_ids);
        --depth_;
        return result;
    }

    std::vector<std::int64_t> numbers() {
        std::vector<std::int64_t> list;
        reader_.expect("(");
        while (!reader_.accept(")")) {
            if (!list.empty()) reader_.expect(",");
            reader_.expect("%");
            list.push_back(reader_.integer("the number of a parameter"));
        }
        return list;
    }

    // What FunctionBuilder lets nobody do.
    static void check_function(TextReader::Place start, const Function& function) {
        std::set<TensorRef> seen;
        for (const TensorRef parameter : function.parameters) {
            if (!seen.insert(parameter).second) TextReader::fail_at(start, "a parameter is listed twice");
        }
        for (std::size_t id = 0; id < function.graph->size(); ++id) {
            const OpNode& node = function.graph->op(static_cast<OpId>(id));
            const bool parameter = seen.contains({static_cast<OpId>(id), 0});
            if (node.variable != nullptr || (node.def->name == "placeholder" && !parameter))
                TextReader::fail_at(start, concat("a function cannot have a `", node.def->name, "` of its own"));
        }
    }

    // Errors of dim arithmetic (a size past 63 bits) know no place in the text.
    void located_operation() {
        const TextReader::Place start = reader_.place();
        try {
            operation();
        } catch (const UserError& error) {
            if (std::string_view(error.what()).starts_with("graph text, line ")) throw;
            TextReader::fail_at(start, error.what());
        }
    }

    void end_line() {
        reader_.skip_blanks();
        if (!reader_.at_line_end()) {
            reader_.fail(concat("expected the end of the line, but found ", reader_.found()));
        }
        reader_.skip_empty_lines();
    }

    OpId operation_number() {
        reader_.skip_blanks();
        const TextReader::Place where = reader_.place();
        reader_.expect("%");
        const std::int64_t number = reader_.integer("the number of an operation");
        const auto found = ids_.find(number);
        if (found == ids_.end()) TextReader::fail_at(where, concat("%", number, " is not defined before this line"));
        return found->second;
    }

    Tensor tensor() {
        reader_.skip_blanks();
        const TextReader::Place where = reader_.place();
        const OpId id = operation_number();
        const OpNode& node = graph_->op(id);
        std::int64_t output = 0;
        if (reader_.peek() == '.') {
            reader_.expect(".");
            output = reader_.integer("the position of a result");
        }
        if (output < 0 || static_cast<std::size_t>(output) >= node.outputs.size()) {
            TextReader::fail_at(where, concat("result ", output, " of `", node.def->name, "` is used, but it has ",
                                              node.outputs.size()));
        }
        return Tensor(graph_, {id, static_cast<std::int32_t>(output)});
    }

    const OpDef& op_def() {
        reader_.skip_blanks();
        const TextReader::Place where = reader_.place();
        const std::string_view name = reader_.word("the name of an operation");
        const OpDef* def = find_op(name);
        if (def == nullptr) {
            std::vector<std::string_view> names;
            for (const OpDef& known : all_ops()) names.push_back(known.name);
            TextReader::fail_at(where, concat("there is no operation '", name, "'", did_you_mean(name, names)));
        }
        return *def;
    }

    void arguments(const OpDef& def, std::vector<Tensor>& inputs, NamedAttributes& attributes) {
        reader_.expect("(");
        bool first = true;
        while (!reader_.accept(")")) {
            if (!first) reader_.expect(",");
            first = false;
            if (reader_.next_is('%')) {
                if (!attributes.empty()) reader_.fail("inputs come before attributes");
                inputs.push_back(tensor());
                continue;
            }
            reader_.skip_blanks();
            const TextReader::Place where = reader_.place();
            const std::string name(reader_.word("an input (%...), an attribute or ')'"));
            const int index = def.attribute_index(name);
            if (index < 0) {
                std::vector<std::string_view> names;
                for (const AttrDef& attr : def.attributes) names.push_back(attr.name);
                TextReader::fail_at(where, concat("`", def.name, "` has no attribute '", name, "'; its attributes are ",
                                                  quoted_list(names), did_you_mean(name, names)));
            }
            reader_.expect("=");
            const AttrDef& attr = def.attributes[static_cast<std::size_t>(index)];
            if (attr.kind == AttributeKind::function) {
                attributes.emplace_back(name, function());
                continue;
            }
            const bool named = attr.allows(AttributeKind::string) && reader_.next_is('"');
            attributes.emplace_back(name, reader_.attribute(named ? AttributeKind::string : attr.kind));
        }
    }

    std::vector<OpId> control() {
        std::vector<OpId> ids;
        if (!reader_.accept("after")) return ids;
        do { ids.push_back(operation_number()); } while (reader_.accept(","));
        return ids;
    }

    // The types in the text must be possible; those inferred here count.
    void types(const OpNode& node) {
        if (!reader_.accept(":")) return;
        for (std::size_t k = 0; k < node.outputs.size(); ++k) {
            if (k > 0) reader_.expect(",");
            reader_.skip_blanks();
            const TextReader::Place where = reader_.place();
            const DType dtype = reader_.dtype();
            const Shape shape = reader_.shape();
            const TensorType& inferred = node.outputs[k];
            if (dtype != inferred.dtype || !shapes_agree(shape, inferred.shape)) {
                TextReader::fail_at(where, concat("the text says ", TensorType{dtype, shape}.str(), ", but result ", k,
                                                  " of `", node.def->name, "` is ", inferred.str()));
            }
        }
    }

    void operation() {
        reader_.skip_blanks();
        const TextReader::Place start = reader_.place();
        reader_.expect("%");
        const std::int64_t number = reader_.integer("the number of the operation");
        if (ids_.contains(number)) TextReader::fail_at(start, concat("%", number, " is defined twice"));
        reader_.expect("=");
        const OpDef& def = op_def();
        std::vector<Tensor> inputs;
        NamedAttributes attributes;
        arguments(def, inputs, attributes);
        const std::string name = reader_.next_is('"') ? reader_.string() : "";
        const std::vector<OpId> after = control();

        const SourceLocation here{"graph text", start.line};
        const ScopedLocation location(here);
        const ScopedDimAssumptions building(nullptr);
        if (!after.empty()) graph_->control_stacks[std::this_thread::get_id()] = {after};
        ids_[number] = create(start, here, [&] { return apply_operation(graph_, def, inputs, attributes, name).id(); });
        graph_->control_stacks.clear();
        types(graph_->op(ids_[number]));
    }

    // Errors of apply() with the line and column instead of the place of creation, which is the same.
    template <typename Create>
    static OpId create(TextReader::Place start, const SourceLocation& here, const Create& apply_it) {
        const auto message = [&](const std::exception& error) {
            std::string text = error.what();
            const std::string created = concat(" (created at ", here.str(), ")");
            if (text.ends_with(created)) text.resize(text.size() - created.size());
            return concat("graph text, line ", start.line, ", column ", start.column, ": ", text);
        };
        try {
            return apply_it();
        } catch (const TypeError& error) { throw TypeError(message(error)); } catch (const UserError& error) {
            throw UserError(message(error));
        }
    }

    TextReader reader_;
    std::shared_ptr<GraphData> graph_ = std::make_shared<GraphData>();
    std::unordered_map<std::int64_t, OpId> ids_;
    int depth_ = 0;  // of functions
};

}  // namespace

ParsedGraph parse_graph(std::string_view text, const FetchArray& fetch) {
    return Parser(text, fetch).parse();
}

Graph Graph::parse(std::string_view text) {
    return Parser(text, nullptr).parse().graph;
}

}  // namespace topstitch
