// The plan of a run: buffers, kernels and steps, with every size as a Dim that the run evaluates.
// All memory that is not the caller's lies in one arena, reserved before the first step. Bodies of loops and branches
// are blocks of the same plan.
#pragma once

#include <string>
#include <vector>

#include "stitch/kernel_cost.h"
#include "stitch/lower.h"

namespace topstitch::stitch {

struct PlanBuffer {
    enum class Kind : std::uint8_t {
        feed,      // the caller's array; index: position among the feeds
        constant,  // index: position in Plan::constants
        variable,  // index: position in Program::states
        result,    // a new or caller-given array; index: position among the results
        arena,     // lives from time first_use to time last_use
        slice,     // a part of another buffer, which the loop around points to
    };
    Kind kind = Kind::arena;
    int index = 0;
    DType dtype = DType::float32;
    Dim elements;
    int first_use = 0;  // times: a loop lasts from before its first step to after its last one
    int last_use = 0;
};

// A launch of a kernel, or a loop or branch.
struct PlanStep {
    int kernel = -1;           // in Plan::kernels
    int control = -1;          // in Plan::controls, instead
    int region = 0;            // in Plan::regions
    std::vector<int> buffers;  // in Plan::buffers, by kernel parameter
    std::vector<Dim> sizes;    // the kernel's size arguments
    Dim parallel_extent;
    Dim work;  // additions, roughly: decides how many threads are worth waking
    KernelCounts counts;
};

struct PlanCopy {
    int from = 0;
    int to = 0;
};

// Steps that are performed in order, and then the copies.
struct PlanBlock {
    std::vector<int> steps;  // in Plan::steps
    std::vector<PlanCopy> copies;
};

// What a loop or branch does with its blocks. All buffers of its blocks are among those of the plan.
struct PlanControl {
    enum class Kind : std::uint8_t {
        branch,       // the first block where the predicate holds, else the second
        while_loop,   // condition, then the first block, for as long as the predicate holds
        counted_loop  // the first block, `length` times
    };
    // Buffer `part` is the element `index` of the first axis of `whole`.
    struct Slice {
        int part = 0;
        int whole = 0;
    };
    Kind kind = Kind::branch;
    int predicate = -1;             // buffer of one bool
    int condition = -1;             // block that computes the predicate
    std::vector<int> blocks;        // in Plan::blocks
    std::vector<PlanCopy> before;   // gives the carried tensors their first values
    std::vector<PlanCopy> history;  // at the start of each iteration
    std::vector<Slice> slices;
    int index = -1;  // buffer of one int32: which iteration it is
    Dim length = 0;
    bool reverse = false;
};

// What the report tells about one region.
struct RegionReport {
    std::string name;
    std::vector<std::string> operations;  // "multiply (t12, model.py:8)"
    std::string schedule;
    std::vector<std::string> kept;      // row values kept in local memory
    std::vector<std::string> in_place;  // variables updated in place
    Dim bytes_read, bytes_written;
    Dim bytes_saved;  // traffic of the tensors that no longer go through memory
};

struct Plan {
    std::vector<PlanBuffer> buffers;
    std::vector<NDArray> constants;  // contiguous
    std::vector<loopir::Kernel> kernels;
    std::vector<PlanStep> steps;
    std::vector<PlanBlock> blocks;  // the first one is the run
    std::vector<PlanControl> controls;
    std::vector<Dim> extents;  // of tensors in the bodies of loops and branches, which must not turn out negative
    std::vector<TensorType> results;
    std::vector<RegionReport> regions;
    std::vector<std::string> refusals;  // "kept apart: exp (t3) and sum (t9): ..."
};

Plan make_plan(const Program& program, const StitchOptions& options, const Machine& machine);

}  // namespace topstitch::stitch
