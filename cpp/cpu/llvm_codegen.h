// From a kernel to machine code in memory, or to text for people.
// Hides LLVM; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/jit.h"
#include "loopir/kernel.h"

namespace llvm {
class MemoryBuffer;
}

namespace topstitch::cpu {

// Where the milliseconds of a compilation went.
struct CodegenTimes {
    double prepare = 0;  // math expansion, contraction, loop plan
    double emit = 0;     // LLVM IR
    double codegen = 0;  // machine code
};

// A scratch buffer's bytes: local_bytes(elements, factor, element_bytes).
struct LocalSize {
    int size_param = -1;        // its elements: this size argument,
    std::int64_t elements = 0;  // or this number if there is none
    int factor = 1;
    std::int64_t element_bytes = 0;
};

struct ObjectCode {
    std::unique_ptr<llvm::MemoryBuffer> object;
    std::vector<LocalSize> locals;
    std::int64_t granularity = 1;
    CodegenTimes times;

    ObjectCode();
    ~ObjectCode();
    ObjectCode(ObjectCode&&) noexcept;
    ObjectCode& operator=(ObjectCode&&) noexcept;
};

// The object file of `kernel` with one function called `symbol`. InternalError when LLVM refuses.
ObjectCode generate_object(const loopir::Kernel& kernel, const TargetInfo& target, const std::string& symbol);
std::string generate_assembly(const loopir::Kernel& kernel, const TargetInfo& target);
std::string generate_llvm_ir(const loopir::Kernel& kernel, const TargetInfo& target);

// The kernel as it is emitted: math expanded and multiply-adds fused, as the target has them.
loopir::Kernel prepared(const loopir::Kernel& kernel, const TargetInfo& target);

}  // namespace topstitch::cpu
