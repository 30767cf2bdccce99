// Makes the plan of one program: the whole run, or the body of a loop or branch in it.
// See plan.h; plan_control.cpp has what loops and branches need.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stitch/plan.h"

namespace topstitch::stitch {

// What all planners of a run share.
struct PlannerSetup {
    const StitchOptions& options;
    const Machine& machine;
    int& clock;  // passes with each step
};

// The buffers around a body that its parameters and results are.
struct Bindings {
    std::vector<int> feeds;
    std::vector<int> states;
    std::vector<int> results;
};

class Planner {
public:
    // Without bindings, the program's feeds, variables and results are the caller's.
    // `around` plans the loop or branch of which this is a body.
    Planner(Plan& plan, const PlannerSetup& setup, const Program& program, std::optional<Bindings> bindings,
            std::string prefix, Planner* around = nullptr);

    // Adds a block to the plan, and gives its number.
    int run();

private:
    void find_read();
    void choose_in_place();
    bool can_replace(const Region& region, int writer, const Program::State& state) const;
    void add_region(int number);
    bool is_early(const PlanStep& step, const std::vector<int>& written) const;
    void add_early(PlanStep step, const std::vector<int>& written);
    void add_in_front(PlanStep step, const std::vector<int>& written);
    Dim work_of(const Region& region) const;
    bool is_control(OpId op) const;

    void add_control(OpId op, const std::string& name);
    void plan_branch(OpId op, PlanControl& control, const std::string& name);
    void plan_while(OpId op, PlanControl& control, const std::string& name);
    void plan_scan(OpId op, PlanControl& control, const std::string& name);
    int carried_buffer(OpId op, int k, PlanControl& control);
    int slice_of(int whole, const TensorType& type, PlanControl& control);
    int plan_body(Program body, Bindings bindings, const std::string& prefix);
    RegionReport control_report(OpId op, const PlanControl& control, const std::string& name) const;

    int buffer_of(TensorRef ref);
    int bound_buffer(TensorRef ref) const;
    PlanBuffer arena_buffer(const TensorType& type) const;
    int add_buffer(const PlanBuffer& buffer);
    void use(int buffer);  // now
    void add_step(PlanStep step);
    void add_copies();
    void copy(int from, int to);
    bool is_packed(int buffer) const;
    static int position_of(TensorRef ref, const std::vector<TensorRef>& refs);

    std::string region_name(const Region& region, int number) const;
    std::string describe(OpId op) const;
    Dim bytes_of(TensorRef ref) const;
    Dim bytes_of_results(OpId op) const;
    void report_region(const Region& region, const Schedule& schedule, const LoweredRegion& lowered,
                       const std::string& name);
    void report_refusals();

    Plan& plan_;
    PlannerSetup setup_;
    const Program& program_;
    const GraphData& graph_;
    const StitchOptions& options_;
    const Machine& machine_;
    std::optional<Bindings> bindings_;
    std::string prefix_;
    Planner* around_;
    std::set<int> same_;  // in the body of a loop: buffers that hold the same in all iterations
    // While a loop is planned: what has to last until its end, and when it began.
    std::vector<int> outlasting_;
    int begun_ = 0;
    Partition partition_;
    int block_ = -1;
    std::map<OpId, TensorRef> in_place_;
    std::map<TensorRef, int> buffers_;
    std::set<TensorRef> read_;
    std::vector<int> report_of_;  // by region: its entry in the report
};

}  // namespace topstitch::stitch
