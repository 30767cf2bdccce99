// Checks every declaration of the registry: names, documentation, schema, and that rules answer for any input.
// What an operation computes is tested with its family.
#include <algorithm>
#include <set>

#include "graph/function.h"
#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

bool is_name(const std::string& text) {
    return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos &&
           (text[0] < '0' || text[0] > '9');
}

// Gives its one parameter back.
FunctionPtr some_function() {
    const auto function = std::make_shared<Function>();
    function->graph = std::make_shared<GraphData>();
    const Tensor parameter = Graph(function->graph).placeholder(Shape{}, DType::int32);
    function->parameters = function->results = {parameter.ref()};
    return function;
}

// Attributes that are required, with some value of their kind.
NamedAttributes some_attributes(const OpDef& def) {
    NamedAttributes given;
    for (const AttrDef& attr : def.attributes) {
        if (!attr.required) continue;
        switch (attr.kind) {
            case AttributeKind::none:
                break;
            case AttributeKind::boolean:
                given.emplace_back(attr.name, true);
                break;
            case AttributeKind::integer:
                given.emplace_back(attr.name, std::int64_t{1});
                break;
            case AttributeKind::real:
                given.emplace_back(attr.name, 0.5);
                break;
            case AttributeKind::string:
                given.emplace_back(attr.name, attr.choices.empty() ? std::string("x") : attr.choices.front());
                break;
            case AttributeKind::dtype:
                given.emplace_back(attr.name, DType::int32);
                break;
            case AttributeKind::integers:
                given.emplace_back(attr.name, std::vector<std::int64_t>{1});
                break;
            case AttributeKind::shape:
                given.emplace_back(attr.name, Shape{Dim::unknown(), 2});
                break;
            case AttributeKind::array:
                given.emplace_back(attr.name, NDArray::zeros(DType::float32, {2}));
                break;
            case AttributeKind::function:
                given.emplace_back(attr.name, some_function());
                break;
        }
    }
    return given;
}

std::vector<Shape> some_shapes() {
    const Dim n = Dim::symbol("n");
    return {Shape{},
            Shape{0},
            Shape{3},
            Shape{2, 3},
            Shape{2, 3, 4},
            Shape{n, 3},
            Shape{Dim::unknown(), n, 2},
            Shape(std::vector<Dim>(16, Dim::unknown())),
            Shape(std::vector<Dim>(16, 1)),
            Shape{std::int64_t{1} << 40, std::int64_t{1} << 40},
            Shape::unranked()};
}

}  // namespace

TEST_CASE("declarations are complete") {
    std::set<std::string> names;
    CHECK(all_ops().size() > 100);
    for (const OpDef& def : all_ops()) {
        CAPTURE(def.name);
        CHECK(is_name(def.name));
        CHECK(names.insert(def.name).second);
        CHECK(is_name(def.family));
        CHECK(def.doc.size() >= 10);
        CHECK(def.doc.back() == '.');
        CHECK(def.infer);
        CHECK((!def.results.empty() || def.name == "assign"));
        if (const auto* none = std::get_if<NotDifferentiable>(&def.gradient)) CHECK(none->reason.size() > 5);
        if (const auto* rule = std::get_if<GradientRule>(&def.gradient)) CHECK(*rule);
        if (std::holds_alternative<FromExpansion>(def.gradient)) CHECK(std::holds_alternative<CompositeBody>(def.body));
    }
}

TEST_CASE("arguments and attributes are well declared") {
    for (const OpDef& def : all_ops()) {
        CAPTURE(def.name);
        std::set<std::string> names;
        bool optional = false;
        for (std::size_t k = 0; k < def.args.size(); ++k) {
            const ArgDef& arg = def.args[k];
            CHECK(is_name(arg.name));
            CHECK(!arg.doc.empty());
            CHECK(names.insert(arg.name).second);
            CHECK((!arg.variadic || k + 1 == def.args.size()));
            CHECK((arg.optional || !optional));  // optional ones come last
            optional = optional || arg.optional;
        }
        for (const AttrDef& attr : def.attributes) {
            CAPTURE(attr.name);
            CHECK(is_name(attr.name));
            CHECK(!attr.doc.empty());
            CHECK(names.insert(attr.name).second);  // in Python both are arguments
            CHECK(attr.kind != AttributeKind::none);
            CHECK((attr.choices.empty() || attr.allows(AttributeKind::string)));
            const bool none = kind_of(attr.fallback) == AttributeKind::none;
            CHECK((none || (!attr.required && kind_of(attr.fallback) == attr.kind)));
        }
        CHECK(complete_attributes(def, some_attributes(def)).size() == def.attributes.size());
    }
}

TEST_CASE("type rules answer or explain, for every dtype and odd shapes") {
    const auto shapes = some_shapes();
    for (const OpDef& def : all_ops()) {
        if (def.name == "assign") continue;  // takes a variable, which apply() has checked by then
        CAPTURE(def.name);
        const auto attributes = complete_attributes(def, some_attributes(def));
        std::size_t least = 0;
        for (const ArgDef& arg : def.args) least += arg.optional ? 0 : 1;
        for (const DType dtype : all_dtypes()) {
            for (const Shape& first : shapes) {
                for (const Shape& second : shapes) {
                    std::vector<TensorType> inputs;
                    for (std::size_t k = 0; k < std::max(least, def.args.size()); ++k) {
                        inputs.push_back({dtype, k == 0 ? first : second});
                    }
                    try {
                        infer_types(def, inputs, attributes);
                    } catch (const UserError& error) {
                        if (!std::string_view(error.what()).starts_with("[" + def.name + "] ")) {
                            FAIL_CHECK("the message does not begin with the operation: ", error.what());
                        }
                    } catch (const std::exception& error) { FAIL_CHECK("an unexpected error: ", error.what()); }
                }
            }
        }
    }
}
