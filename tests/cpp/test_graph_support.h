// Small operations of our own and shorthand for the graph tests.
// They do not depend on the families of operations, which have tests of their own.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "graph/apply.h"
#include "test_support.h"

namespace topstitch::graph_test {

template <typename T>
NDArray array_of(DType dtype, const Sizes& shape, const std::vector<T>& values) {
    return NDArray::copy_of(values.data(), dtype, shape);
}

inline NDArray floats(const Sizes& shape, const std::vector<float>& values) {
    return array_of(DType::float32, shape, values);
}

inline std::vector<double> values_of(const NDArray& array) {
    std::vector<double> values;
    for (std::int64_t k = 0; k < array.size(); ++k) values.push_back(array.at(k));
    return values;
}

// a + b with broadcasting; equal dtypes.
inline OpDef make_add() {
    OpDef def;
    def.name = "test_add";
    def.args = {{"a", ""}, {"b", ""}};
    def.results = {"sum"};
    def.infer = [](const OpView& v) {
        if (v.input(0).dtype != v.input(1).dtype) v.fail_type("the dtypes differ; use cast");
        return std::vector{TensorType{v.input(0).dtype, broadcast_shapes(v, v.in_shape(0), v.in_shape(1))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Value a = c.broadcast_operand(0, at);
        const Value b = c.broadcast_operand(1, at);
        Value sum{c.b.add(a.re, b.re)};
        if (a.is_complex()) sum.im = c.b.add(a.im, b.im);
        return sum;
    }};
    return def;
}

// A reduction over the last axis.
inline OpDef make_reduce(const std::string& name, Combiner combiner, bool positions = false) {
    OpDef def;
    def.name = name;
    def.args = {{"x", ""}};
    def.results = {"y"};
    def.infer = [positions](const OpView& v) {
        std::vector<Dim> dims = v.in_shape(0).dims();
        dims.pop_back();
        return std::vector{TensorType{positions ? DType::int32 : v.input(0).dtype, Shape(std::move(dims))}};
    };
    def.body = ReduceBody{[combiner](const OpView&) { return combiner; },
                          [](const OpView& v) { return std::vector{v.in_shape(0).dims().back()}; },
                          [](ElementContext& c, const Indices& at, const Indices& reduce) {
                              Indices index = at;
                              index.push_back(reduce[0]);
                              return c.operand(0, index);
                          }};
    return def;
}

// An operation with an attribute of every kind, which does nothing with them.
inline OpDef make_every_kind() {
    OpDef def;
    def.name = "test_every_kind";
    def.args = {{"x", ""}};
    def.results = {"y"};
    def.attributes = {
        {"flag", AttributeKind::boolean, "a flag", false, false, {}},
        {"count", AttributeKind::integer, "a count", false, std::int64_t{3}, {}},
        {"scale", AttributeKind::real, "a factor", false, 0.5, {}},
        {"mode", AttributeKind::string, "a mode", false, std::string("constant"), {"constant", "reflect"}},
        {"dtype", AttributeKind::dtype, "a dtype", false, DType::float32, {}},
        {"axes", AttributeKind::integers, "axes", false, {}, {}},
        {"shape", AttributeKind::shape, "a shape", false, {}, {}},
        {"table", AttributeKind::array, "a table", false, {}, {}},
        {"needed", AttributeKind::integer, "what must be given", true, {}, {}},
    };
    def.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    return def;
}

}  // namespace topstitch::graph_test
