// The dims of an attention problem, from the shapes of the query, the key and the value.
// Type rules check them; the kernels (stitch/lower_attention.cpp) run over them.
#pragma once

#include <cstdint>

#include "graph/op_def.h"

namespace topstitch {

// The inputs that all operations of the family begin with.
namespace attention_input {
inline constexpr int query = 0, key = 1, value = 2;
}  // namespace attention_input

// Tensors are [batch..., heads, tokens, features]; those of rank 2 have one head.
struct AttentionShapes {
    bool ranked = false;  // else nothing below is known
    Shape batch;          // of query, key and value, broadcast together
    bool has_heads = false;
    Dim heads, kv_heads, tokens, kv_tokens, features, value_features;
    Dim group;  // heads / kv_heads: so many share one of the key; unknown when it cannot be told (yet)

    // [batch..., heads, `rest`...], without the heads when no input has them.
    Shape with_heads(const Dim& count, std::initializer_list<Dim> rest) const;
    Shape scores() const { return with_heads(heads, {tokens, kv_tokens}); }
    Shape rows() const { return with_heads(heads, {tokens}); }
};

// UserError when they do not fit together.
AttentionShapes attention_shapes(const OpView& view);

// The dims before the heads.
Shape dims_before_heads(const Shape& shape);

}  // namespace topstitch
