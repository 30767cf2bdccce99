// What each operation reads, as index expressions over its own iteration space, and what it costs.
// Found by running the bodies once on a scratch builder.
#pragma once

#include <optional>
#include <vector>

#include "passes/program.h"

namespace topstitch::stitch {

// One tensor that an operation needs, at an index over the operation's own variables.
struct Request {
    TensorRef tensor;
    Indices at;
    bool dynamic = false;  // the index depends on loaded values
    bool guarded = false;  // the index may be out of range, where the result is not used
};

struct OpAccess {
    // The operation's own variables: the output's axes of extent other than 1, then the reduce domain.
    std::vector<Dim> vars;
    int num_out = 0;
    Indices home;                   // the output index of an iteration; 0 on axes of extent 1
    std::vector<Request> requests;  // with views looked through
    std::vector<Index> index_uses;  // indices used as numbers (coordinates, guards), not only for addressing
    double cost = 0;                // arithmetic for one element, looked-through views included; an addition is 1
    bool is_reduce = false;
    // Of a scan: which of the own variables it runs along (an axis of one element needs no scan), and how.
    struct Scan {
        loopir::VarId var = -1;
        bool reverse = false;
        // Its values may be combined in any grouping: not products of floats, whose parts may overflow where the whole
        // does not.
        bool associative = true;
    };
    std::optional<Scan> scan;
    bool walks_row() const { return is_reduce || scan; }
    // Of a scatter, whose own variables are the output's, then those of the updates: how an update finds its place.
    struct Scatter {
        std::vector<loopir::VarId> direct;  // by axis of the output: the variable that is the index there, or -1
        std::vector<bool> searched;         // which of the own variables decide about the other axes
        loopir::VarId lanes = -1;           // the last one, when it is the index on the last axis and decides nothing
    };
    std::optional<Scatter> scatter;
    // Of a sort, whose own variables are the output's, then the place along the axis of what is sorted: that one,
    // unless there is one place only.
    bool is_sort = false;
    loopir::VarId sorted = -1;
    bool has_own_loops() const { return is_sort || scatter; }
    // Of a contraction: for each factor, which of the operation's own variables it depends on.
    std::vector<std::vector<bool>> factor_vars;
    std::vector<bool> invariant_factors;  // which of them are the same in all iterations of the loop around
    // Of a window: its positions over the own variables, and which of those its factor depends on beside them.
    std::vector<Index> positions;
    std::vector<bool> window_vars;
    std::vector<bool> exists_vars;  // which the existence of a product depends on
    bool is_empty_sum = false;      // no product exists, whatever they are
    bool is_contraction() const { return !factor_vars.empty(); }
    bool invariant = false;           // in the body of a loop: the same in all iterations
    Library library = Library::none;  // it has kernels of its own, and reads its inputs in an order of theirs
    bool is_control = false;          // a loop or branch: reads its inputs as they lie in memory
    bool has_body = false;            // false for placeholders, variables and constants
    int depth = 0;                    // of the views that are looked through
    bool inlined = false;             // a view or a scalar constant: repeated in whoever reads it
};

// The access of every operation of the program; with `look_through` views are inlined into their readers.
std::vector<OpAccess> find_accesses(const Program& program, bool look_through);

// Where an element of a tensor lies in its buffer, and how many elements that spans: a result may be strided.
Index memory_offset(const Program& program, TensorRef ref, const Indices& at);
Dim memory_size(const Program& program, TensorRef ref);

// How far the operand behind a window goes along one of its positions.
Dim window_extent(const Program& program, const OpAccess& access, OpId op, int position);

// True for constants of one element, which kernels hold as immediates.
bool is_scalar_constant(const GraphData& graph, TensorRef ref);

}  // namespace topstitch::stitch
