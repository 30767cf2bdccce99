// Finds the dims of an attention problem, or says why the shapes do not fit together.
// See attention_shapes.h.
#include "ops/attention_shapes.h"

#include <algorithm>

#include "graph/dims.h"
#include "ops/rules.h"

namespace topstitch {

namespace {

using namespace attention_input;

Dim heads_of(const Shape& shape) {
    return shape.rank() > 2 ? shape[shape.rank() - 3] : Dim(1);
}

// A dim counted from the end that two inputs share.
Dim shared_dim(const OpView& view, int a, int b, int from_end, const char* what) {
    const Shape& first = view.in_shape(a);
    const Shape& second = view.in_shape(b);
    const Dim& left = first[first.rank() - from_end];
    const Dim& right = second[second.rank() - from_end];
    if (!dims_agree(left, right)) {
        view.fail(concat(ops::input_name(view, a), " has shape ", first.str(), " and ", ops::input_name(view, b), " ",
                         second.str(), ", but the ", what, ", ", left.str(), " and ", right.str(),
                         ", must be equal; the axes are [batch..., heads, tokens, features]"));
    }
    return unify_dims(left, right);
}

}  // namespace

Shape dims_before_heads(const Shape& shape) {
    const auto count = std::max(shape.rank() - 3, 0);
    return Shape(std::vector<Dim>(shape.dims().begin(), shape.dims().begin() + count));
}

Shape AttentionShapes::with_heads(const Dim& count, std::initializer_list<Dim> rest) const {
    std::vector<Dim> dims = batch.dims();
    if (has_heads) dims.push_back(count);
    dims.insert(dims.end(), rest);
    return Shape(std::move(dims));
}

AttentionShapes attention_shapes(const OpView& view) {
    AttentionShapes shapes;
    for (const int k : {query, key, value}) {
        const Shape& shape = view.in_shape(k);
        if (!shape.has_rank()) return shapes;
        if (shape.rank() < 2) {
            view.fail(concat(ops::input_name(view, k), " has shape ", shape.str(),
                             ", but at least the axes [tokens, features] are needed; give it those with expand_dims"));
        }
        shapes.has_heads = shapes.has_heads || shape.rank() > 2;
    }
    shapes.ranked = true;
    const Shape& of_query = view.in_shape(query);
    const Shape& of_value = view.in_shape(value);
    shapes.features = shared_dim(view, query, key, 1, "features");
    shapes.kv_tokens = shared_dim(view, key, value, 2, "tokens of key and value");
    shapes.tokens = of_query[of_query.rank() - 2];
    shapes.value_features = of_value[of_value.rank() - 1];
    shapes.heads = heads_of(of_query);
    const Dim key_heads = heads_of(view.in_shape(key));
    const Dim value_heads = heads_of(of_value);
    if (!dims_agree(key_heads, value_heads)) {
        view.fail(concat("the key has ", key_heads.str(), " heads and the value ", value_heads.str(),
                         ", but their numbers must be equal; broadcast_to gives one of them more"));
    }
    shapes.kv_heads = unify_dims(key_heads, value_heads);
    shapes.group = dims_quotient(shapes.heads, shapes.kv_heads);
    if (shapes.group.is_unknown() && shapes.heads.is_known() && shapes.kv_heads.is_known()) {
        view.fail(concat("the query has ", shapes.heads.str(), " heads and the key ", shapes.kv_heads.str(),
                         ", but the query's must be a multiple of the key's, which they share in groups; the axes are "
                         "[batch..., heads, tokens, features]"));
    }
    shapes.batch = dims_before_heads(of_query);
    for (const int k : {key, value}) {
        shapes.batch = broadcast_shapes(view, shapes.batch, dims_before_heads(view.in_shape(k)));
    }
    return shapes;
}

}  // namespace topstitch
