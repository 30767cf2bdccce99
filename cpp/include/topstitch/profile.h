// What a run cost: each kernel's time, bytes and FLOPs, and how near they are to what the machine can do.
// Printed as a table, and saved as a trace for Perfetto or chrome://tracing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "topstitch/device.h"
#include "topstitch/export.h"

namespace topstitch {

// One launch of one kernel.
struct StepTime {
    int step = 0;  // its position in the run
    int threads = 1;
    std::chrono::steady_clock::time_point start;
    std::chrono::steady_clock::time_point end;
};

// What one launch of a kernel moves and computes.
struct KernelCost {
    std::string name;
    std::vector<std::string> operations;
    std::int64_t bytes_read = 0;  // each buffer once
    std::int64_t bytes_written = 0;
    std::int64_t flops = 0;  // a multiply-add counts as two, a function such as exp as one
};

// Measured once in a process, with kernels of our own: a large copy, and a product of 1024 x 1024 matrices.
struct MachineLimits {
    double bytes_per_second = 0;  // read and written
    double flops_per_second = 0;  // float32
};
TOPSTITCH_API MachineLimits machine_limits(const Device& device = {});

struct TOPSTITCH_API Profile {
    struct Kernel {
        KernelCost cost;   // of all launches
        int launches = 1;  // in the last run: more inside loops, none in a branch that was not taken
        int threads = 1;
        double microseconds = 0;  // of all launches; median over the runs
        double bytes_per_second() const {
            return static_cast<double>(cost.bytes_read + cost.bytes_written) / (microseconds * 1e-6);
        }
        double flops_per_second() const { return static_cast<double>(cost.flops) / (microseconds * 1e-6); }
    };
    // A span of the trace, in microseconds from the first.
    struct Event {
        std::string track;
        std::string name;
        double start = 0;
        double duration = 0;
        std::string detail;
    };
    std::vector<Kernel> kernels;  // in the order in which they run
    int runs = 0;
    double run_microseconds = 0;  // median of a whole run, from the check of the arrays to the results
    double compile_milliseconds = 0;
    MachineLimits limits;
    std::vector<Event> events;  // the compilation, and the last run

    std::string str() const;
    // The Trace Event Format (JSON).
    std::string trace_json() const;
};

}  // namespace topstitch
