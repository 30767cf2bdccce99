// Links object code into this process with ORC and JITLink, and compiles batches of kernels on several threads.
// One JIT serves all kernels; each has a library of its own, which goes with the kernel.
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "core/exit_gate.h"
#include "cpu/jit.h"
#include "cpu/kernel_cache.h"
#include "cpu/llvm_codegen.h"
#include "cpu/loop_plan.h"
#include "cpu/target.h"
#include "cpu/thread_pool.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

namespace {

void check(llvm::Error error, const char* what) {
    if (error) throw InternalError(concat("LLVM: ", what, ": ", llvm::toString(std::move(error))));
}

template <typename T>
T check(llvm::Expected<T> value, const char* what) {
    if (!value) check(value.takeError(), what);
    return std::move(*value);
}

// What generated code may call: for targets without the instruction, and for the rare remainders that need it.
float library_fmaf(float a, float b, float c) {
    return std::fma(a, b, c);
}
double library_fma(double a, double b, double c) {
    return std::fma(a, b, c);
}
float library_fmodf(float a, float b) {
    return std::fmod(a, b);
}
double library_fmod(double a, double b) {
    return std::fmod(a, b);
}

constexpr const char* kernel_symbol = "kernel";

class Jit {
public:
    // Never destroyed: kernels may outlive every static object.
    static Jit& instance() {
        static auto* jit = new Jit;
        return *jit;
    }

    struct Linked {
        KernelFunction function;
        llvm::orc::JITDylib* library;
    };

    Linked link(std::unique_ptr<llvm::MemoryBuffer> object) {
        // A library of its own: the symbol is the same in all objects, which may come from a file.
        static std::atomic<std::int64_t> counter{0};
        llvm::orc::JITDylib& library =
            jit_->getExecutionSession().createBareJITDylib(concat("kernel ", counter.fetch_add(1)));
        library.addToLinkOrder(jit_->getMainJITDylib());
        Linked linked{nullptr, &library};
        try {
            check(jit_->addObjectFile(library, std::move(object)), "adding a kernel");
            linked.function = check(jit_->lookup(library, kernel_symbol), "linking a kernel").toPtr<KernelFunction>();
        } catch (...) {
            unlink(linked);
            throw;
        }
        return linked;
    }
    void unlink(const Linked& linked) {
        llvm::consumeError(jit_->getExecutionSession().removeJITDylib(*linked.library));
    }

private:
    Jit() {
        llvm_target();  // initialises LLVM
        llvm::orc::LLJITBuilder builder;
        llvm::orc::JITTargetMachineBuilder machine(native_triple());
        machine.setRelocationModel(llvm::Reloc::PIC_);
        machine.setCodeModel(llvm::CodeModel::Small);
        builder.setJITTargetMachineBuilder(std::move(machine));
        // Kernels see nothing of the process but the four functions below, and need no constructors run.
        builder.setLinkProcessSymbolsByDefault(false);
        builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
#if !defined(_WIN32)
        builder.setObjectLinkingLayerCreator(
            [](llvm::orc::ExecutionSession& session,
               llvm::jitlink::JITLinkMemoryManager& memory) -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> {
                return std::make_unique<llvm::orc::ObjectLinkingLayer>(session, memory);
            });
#endif
        jit_ = check(builder.create(), "starting the JIT");
        // Errors reach the caller of lookup; they need not be printed as well.
        jit_->getExecutionSession().setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
        llvm::orc::SymbolMap symbols;
        const auto define = [&](const char* name, auto* function) {
            symbols[jit_->mangleAndIntern(name)] =
                llvm::orc::ExecutorSymbolDef(llvm::orc::ExecutorAddr::fromPtr(function),
                                             llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable);
        };
        define("fmaf", library_fmaf);
        define("fma", library_fma);
        define("fmodf", library_fmodf);
        define("fmod", library_fmod);
        check(jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))), "defining symbols");
    }

    std::unique_ptr<llvm::orc::LLJIT> jit_;
};

class JitKernel final : public CompiledKernel {
public:
    JitKernel(const loopir::Kernel& kernel, const TargetInfo& target, const std::string& key)
        : kernel_(kernel), target_(target) {
        const auto start = std::chrono::steady_clock::now();
        ObjectCode code = cached_object(key, [&] {
            from_disk_ = false;
            return generate_object(kernel, target, kernel_symbol);
        });
        linked_ = Jit::instance().link(std::move(code.object));
        locals_ = std::move(code.locals);
        granularity_ = code.granularity;
        milliseconds_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    }
    ~JitKernel() override { Jit::instance().unlink(linked_); }
    JitKernel(const JitKernel&) = delete;
    JitKernel& operator=(const JitKernel&) = delete;

    KernelFunction function() const override { return linked_.function; }
    bool from_disk() const { return from_disk_; }

    std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const override {
        std::int64_t bytes = 0;
        for (const LocalSize& local : locals_) {
            const std::int64_t elements =
                local.size_param < 0 ? local.elements : sizes[static_cast<std::size_t>(local.size_param)];
            bytes += local_bytes(elements, local.factor, local.element_bytes);
        }
        return bytes;
    }

    std::int64_t granularity() const override { return granularity_; }
    double compile_milliseconds() const override { return milliseconds_; }
    std::string assembly() const override { return generate_assembly(kernel_, target_); }
    std::string llvm_ir() const override { return generate_llvm_ir(kernel_, target_); }

private:
    const loopir::Kernel kernel_;
    const TargetInfo target_;
    Jit::Linked linked_;
    std::vector<LocalSize> locals_;
    std::int64_t granularity_ = 1;
    double milliseconds_ = 0;
    bool from_disk_ = true;
};

// Runs work(i) for each i below `count` on threads of their own: a compilation takes milliseconds, for which the
// pool must not be kept from running kernels. Takes up nothing more after an exception, and rethrows the first by
// number.
void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> errors(count);
    const auto drain = [&] {
        for (std::size_t i; (i = next.fetch_add(1)) < count;) {
            try {
                work(i);
            } catch (...) {
                errors[i] = std::current_exception();
                next.store(count);
            }
        }
    };
    std::vector<std::thread> threads;
    const std::size_t wanted = std::min(count, static_cast<std::size_t>(num_threads()));
    try {
        while (threads.size() + 1 < wanted) threads.emplace_back(drain);
    } catch (const std::system_error&) {
        // Fewer threads will do.
    }
    drain();
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace

std::vector<std::shared_ptr<const CompiledKernel>> compile(std::span<const loopir::Kernel> kernels,
                                                           const TargetInfo& target, CompileCounts* counts) {
    std::vector<CompiledKernelPtr> results(kernels.size());
    std::vector<std::string> keys;
    std::map<std::string, std::size_t> first;  // of equal kernels
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        keys.push_back(concat(loopir::print(kernels[i], true), "\n", target.cpu, "\n", target.features, "\n",
                              target.fuse ? "" : "strict ", target.optimization_level));
        results[i] = kernel_cache().find(keys[i]);
        if (results[i] == nullptr && first.emplace(keys[i], i).second) missing.push_back(i);
    }
    std::atomic<int> compiled{0};
    std::atomic<int> from_disk{0};
    run_on_threads(missing.size(), [&](std::size_t m) {
        const ExitGate exit_gate;  // of each: the end of the process waits for the kernel, not for all that follow
        const std::size_t i = missing[m];
        results[i] = kernel_cache().get(keys[i], [&] {
            auto made = std::make_shared<const JitKernel>(kernels[i], target, keys[i]);
            ++(made->from_disk() ? from_disk : compiled);
            return made;
        });
    });
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        if (results[i] == nullptr) results[i] = results[first.at(keys[i])];
    }
    if (counts != nullptr) *counts = {compiled, from_disk};
    return results;
}

}  // namespace topstitch::cpu
