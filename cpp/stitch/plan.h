// The plan of a run: buffers, kernels and steps, with every size as a Dim that the run evaluates.
// All memory that is not the caller's lies in one arena, reserved before the first step.
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
        arena,     // lives from step first_use to step last_use
    };
    Kind kind = Kind::arena;
    int index = 0;
    DType dtype = DType::float32;
    Dim elements;
    int first_use = 0;
    int last_use = 0;
};

struct PlanStep {
    int kernel = 0;            // in Plan::kernels
    int region = 0;            // in Plan::regions
    std::vector<int> buffers;  // in Plan::buffers, by kernel parameter
    std::vector<Dim> sizes;    // the kernel's size arguments
    Dim parallel_extent;
    Dim work;  // additions, roughly: decides how many threads are worth waking
    KernelCounts counts;
};

// After the last step.
struct PlanCopy {
    int from = 0;
    int to = 0;
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
    std::vector<PlanCopy> copies;
    std::vector<TensorType> results;
    std::vector<RegionReport> regions;
    std::vector<std::string> refusals;  // "kept apart: exp (t3) and sum (t9): ..."
};

Plan make_plan(const Program& program, const StitchOptions& options, const Machine& machine);

}  // namespace topstitch::stitch
