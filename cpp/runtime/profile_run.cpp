// Runs an executable and measures each of its kernels.
// Variables are updated as in any run.
#include <algorithm>
#include <map>

#include "runtime/executable_impl.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// What is known of the compilation are durations: they are laid end to end, and kernels, which are compiled on
// several threads, have a track of their own. Gives the time when the last one ends.
double add_compilation(const Report& report, std::vector<Profile::Event>& events) {
    const double passes = report.pass_milliseconds * 1e3;
    const double stitching = report.stitch_milliseconds * 1e3 - passes;
    const double all = report.compile_milliseconds * 1e3;
    if (passes > 0) events.push_back({"compilation", "passes", 0, passes, ""});
    if (stitching > 0) events.push_back({"compilation", "stitching", passes, stitching, ""});
    events.push_back({"compilation", "kernels", passes + stitching, std::max(all - passes - stitching, 0.0),
                      concat(report.kernels_compiled, " of ", report.kernels, " compiled now, ",
                             report.kernels_from_disk, " read from disk")});
    double at = passes + stitching;
    for (const auto& [name, milliseconds] : report.kernel_milliseconds) {
        if (milliseconds <= 0) continue;
        events.push_back({"machine code (threads laid end to end)", name, at, milliseconds * 1e3, ""});
        at += milliseconds * 1e3;
    }
    return std::max(all, at);
}

}  // namespace

Profile Executable::profile(std::span<const NDArray> inputs, int runs) const {
    if (runs < 1) throw UserError(concat("[profile] at least 1 run is needed, not ", runs));
    Profile profile;
    profile.limits = machine_limits(impl_->signature().options.device);
    const PreparedRun prepared = impl_->prepare(*graph_, inputs, {});
    const auto control_with = [](std::vector<StepTime>& times) {
        RunControl control;
        control.times = &times;
        return control;
    };
    std::vector<StepTime> times;
    static_cast<void>(ExecutableImpl::execute(prepared, inputs, {}, control_with(times)));  // warms up
    std::map<int, std::vector<double>> by_step;                                             // of each run
    std::vector<double> totals;
    Clock::time_point begun;
    Clock::time_point ended;
    for (int k = 0; k < runs; ++k) {
        times.clear();
        begun = Clock::now();
        const auto results =
            ExecutableImpl::execute(impl_->prepare(*graph_, inputs, {}), inputs, {}, control_with(times));
        ended = Clock::now();
        totals.push_back(microseconds(ended - begun));
        std::map<int, double> sums;
        for (const StepTime& time : times) sums[time.step] += microseconds(time.end - time.start);
        for (const auto& [step, sum] : sums) by_step[step].push_back(sum);
    }
    const Report report = prepared.variant->report();
    profile.runs = runs;
    profile.run_microseconds = median(totals);
    profile.compile_milliseconds = report.compile_milliseconds;
    const double start = add_compilation(report, profile.events);
    profile.events.push_back({"run", "run", start, microseconds(ended - begun), ""});
    const std::vector<KernelCost> costs = prepared.variant->costs(prepared.symbols);
    std::map<int, std::size_t> listed;  // by step: its place among the kernels
    for (const StepTime& time : times) {
        const KernelCost& cost = costs[static_cast<std::size_t>(time.step)];
        std::string operations;
        for (const std::string& operation : cost.operations) operations += (operations.empty() ? "" : ", ") + operation;
        profile.events.push_back({"kernels", cost.name, start + microseconds(time.start - begun),
                                  microseconds(time.end - time.start),
                                  concat(operations, "; ", cost.bytes_read, " bytes read, ", cost.bytes_written,
                                         " written, ", cost.flops, " FLOPs, ", time.threads, " threads")});
        const auto [place, first] = listed.emplace(time.step, profile.kernels.size());
        if (first) {
            profile.kernels.push_back({cost, 1, time.threads, median(by_step[time.step])});
            continue;
        }
        Profile::Kernel& kernel = profile.kernels[place->second];
        ++kernel.launches;
        kernel.cost.bytes_read += cost.bytes_read;
        kernel.cost.bytes_written += cost.bytes_written;
        kernel.cost.flops += cost.flops;
    }
    return profile;
}

}  // namespace topstitch
