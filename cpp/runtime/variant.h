// One compiled form of an executable: a shared program, bound to the variables and places of one graph.
// See CompiledProgram for what is shared.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/program_cache.h"

namespace topstitch {

class Variant {
public:
    // Finds or compiles; `request` refers to the user's graph, which is only read here. Throws NeedsExactSizes as
    // specialize does.
    Variant(const SpecializeRequest& request, const CompileOptions& options, DeviceBackend& device);

    ~Variant() { program_->remove_user(); }
    Variant(const Variant&) = delete;
    Variant& operator=(const Variant&) = delete;

    const CompiledProgram& program() const { return *program_; }
    bool accepts(std::span<const std::int64_t> symbols) const { return program_->accepts(symbols); }
    std::optional<std::vector<NDArray>> run(std::span<const NDArray> inputs, std::span<const std::int64_t> symbols,
                                            std::span<const NDArray> results, const RunControl& control) const {
        return program_->run(inputs, symbols, results, states_, control);
    }

    // The program's texts, with the places of this graph.
    Report report() const;
    std::vector<KernelCost> costs(std::span<const std::int64_t> symbols) const;
    bool found() const { return found_; }  // no compilation was needed

private:
    std::shared_ptr<const CompiledProgram> program_;
    CompiledProgram::States states_;
    std::vector<std::pair<std::string, std::string>> places_;  // of the program, and those of this graph
    bool found_ = false;
    double milliseconds_ = 0;  // to find or compile it
};

}  // namespace topstitch
