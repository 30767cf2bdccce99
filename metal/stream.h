// The kernels of one run, encoded into command buffers of Metal's in their order.
// See DeviceStream in runtime/device.h.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "metal/memory.h"
#include "metal/pipeline_cache.h"
#include "runtime/device.h"

namespace topstitch::metal {

// What all runs on one GPU share.
struct SharedGpu {
    explicit SharedGpu(const Gpu& device);
    // With another queue of the same GPU: memory and pipelines are those of `other`.
    SharedGpu(const Gpu& device, const SharedGpu& other);

    Gpu gpu;
    std::shared_ptr<Memory> memory;
    std::shared_ptr<PipelineCache> pipelines;
};

class Stream : public DeviceStream {
public:
    explicit Stream(SharedGpu& shared) : shared_(shared) {}
    // Into commands of the caller's, which are not committed here.
    Stream(SharedGpu& shared, GpuCommands commands) : shared_(shared), callers_(true), open_(true) {
        begun_.push_back(std::move(commands));
    }
    ~Stream() override;

    bool reaches(const Buffer& buffer) override;
    void copy(void* to, const void* from, std::size_t bytes) override;
    void write(void* to, const void* data, std::size_t bytes) override;
    void wait() override;
    void leave_to_caller(std::shared_ptr<void> used) override;

    // The commands to encode into, and what is to be called when a grid has been added.
    GpuCommands& commands();
    void bind(const void* pointer, unsigned index);
    void dispatch(Extents groups, Extents threads_per_group);

private:
    void commit();
    void wait_for_all();

    SharedGpu& shared_;
    const bool callers_ = false;
    bool open_ = false;
    std::vector<GpuCommands> begun_;  // the last one is open if open_
    int dispatches_ = 0;              // in the open one
    std::vector<const Buffer*> borrowed_;
    std::vector<GpuBuffer> used_;  // by commands of the caller's
};

}  // namespace topstitch::metal
