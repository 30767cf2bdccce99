// The memory of each thread: where the answer to a question lies follows from its hash.
// See dim_memo.h.
#include "core/dim_memo.h"

#include "core/mixed_hash.h"

namespace topstitch {

namespace {

constexpr std::size_t size = 4096;  // a power of two; a large graph asks some thousand different questions

}  // namespace

DimMemo::DimMemo() : entries_(std::make_unique<Entry[]>(size)) {}

DimMemo& DimMemo::of_this_thread() {
    thread_local DimMemo memo;
    return memo;
}

DimMemo::Entry& DimMemo::place(DimOperation operation, const Dim& a, const Dim& b) {
    const std::size_t hash =
        mixed_hash(mixed_hash(static_cast<std::size_t>(operation), DimExpr::hash_of(a)), DimExpr::hash_of(b));
    return entries_[hash % size];
}

}  // namespace topstitch
