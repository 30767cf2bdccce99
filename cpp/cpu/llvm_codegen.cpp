// Runs the emitter and LLVM's code generator. The IR is emitted clean: no optimisation pass is run, and those that
// the code generator brings along and kernels never need are left out, which saves a third of the time.
#include "cpu/llvm_codegen.h"

#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>

#include "core/settings.h"
#include "cpu/emitter.h"
#include "cpu/loop_plan.h"
#include "cpu/target.h"
#include "loopir/contract.h"
#include "loopir/math_expand.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

namespace {

std::unique_ptr<llvm::TargetMachine> make_machine(const TargetInfo& target) {
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // multiply-adds are explicit
    const auto level = target.optimization_level == 0 ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::Default;
    std::unique_ptr<llvm::TargetMachine> machine(
        llvm_target().createTargetMachine(native_triple(), target.cpu, target.features, options, llvm::Reloc::PIC_,
                                          llvm::CodeModel::Small, level, /*JIT=*/true));
    if (machine == nullptr) throw InternalError(concat("LLVM: cannot generate code for the CPU '", target.cpu, "'"));
    return machine;
}

// Lends out target machines, one to each thread at a time: they are costly to make and not thread-safe.
class MachinePool {
public:
    static MachinePool& instance() {
        static auto* pool = new MachinePool;  // never destroyed: compilations may outlive static objects
        return *pool;
    }

    class Loan {
    public:
        Loan(MachinePool& pool, const TargetInfo& target)
            : pool_(pool), key_(concat(target.cpu, "\n", target.features, "\n", target.optimization_level)) {
            {
                const std::lock_guard lock(pool_.mutex_);
                auto& idle = pool_.idle_[key_];
                if (!idle.empty()) {
                    machine_ = std::move(idle.back());
                    idle.pop_back();
                    return;
                }
            }
            machine_ = make_machine(target);
        }
        ~Loan() {
            const std::lock_guard lock(pool_.mutex_);
            pool_.idle_[key_].push_back(std::move(machine_));
        }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;
        llvm::TargetMachine& operator*() { return *machine_; }
        llvm::TargetMachine* operator->() { return machine_.get(); }

    private:
        MachinePool& pool_;
        std::string key_;
        std::unique_ptr<llvm::TargetMachine> machine_;
    };

private:
    std::mutex mutex_;
    std::map<std::string, std::vector<std::unique_ptr<llvm::TargetMachine>>> idle_;
};

class Stopwatch {
public:
    double lap() {  // milliseconds since the last call
        const auto now = std::chrono::steady_clock::now();
        const double passed = std::chrono::duration<double, std::milli>(now - last_).count();
        last_ = now;
        return passed;
    }

private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Passes of the code generator that do nothing for kernels, which have no exceptions, no garbage collection, no
// calls worth mentioning, and whose loops the emitter has strength-reduced. A name that LLVM no longer uses is ignored.
constexpr std::string_view unneeded_passes[] = {
    "Analyze Machine Code For Garbage Collection",
    "Canonicalize Freeze Instructions in Loops",
    "Constant Hoisting",
    "Contiguously Lay Out Funclets",
    "Early If-Conversion",
    "Exception handling preparation",
    "Expand Atomic instructions",
    "Expand indirectbr instructions",
    "Fixup Statepoint Caller Saved",
    "Implement the 'patchable-function' attribute",
    "Insert KCFI indirect call checks",
    "Insert XRay ops",
    "Insert fentry calls",
    "Insert stack protectors",
    "Instrument function entry/exit with calls to e.g. mcount() (post inlining)",
    "Interleaved Access Pass",
    "Live DEBUG_VALUE analysis",
    "Live Range Shrink",
    "Local Dynamic TLS Access Clean-up",
    "Loop Strength Reduction",
    "Lower AMX intrinsics",
    "Lower AMX type for load/store",
    "Lower Garbage Collection Instructions",
    "Machine Sanitizer Binary Metadata",
    "Merge disjoint stack slots",
    "ObjC ARC contraction",
    "Partially inline calls to library functions",
    "Prepare inline asm insts",
    "Register Allocation Pass Scoring",
    "Remove Loads Into Fake Uses",
    "Remove Redundant DEBUG_VALUE analysis",
    "Replace intrinsics with calls to vector library",
    "Safe Stack instrumentation pass",
    "Shadow Stack GC Lowering",
    "StackMap Liveness Analysis",
    "Tile Register Configure",
    "Tile Register Pre-configure",
    "X86 Atom pad short functions",
    "X86 Avoid Store Forwarding Blocks",
    "X86 Domain Reassignment Pass",
    "X86 DynAlloca Expander",
    "X86 Indirect Branch Tracking",
    "X86 Load Value Injection (LVI) Load Hardening",
    "X86 Lower Tile Copy",
    "X86 Partial Reduction",
    "X86 Suppress APX features for relocation",
    "X86 cmov Conversion",
    "X86 insert wait instruction",
    "X86 speculative load hardening",
};

class KernelPasses : public llvm::legacy::PassManager {
public:
    void add(llvm::Pass* pass) override {
        const std::string_view name = pass->getPassName();
        if (std::find(std::begin(unneeded_passes), std::end(unneeded_passes), name) != std::end(unneeded_passes)) {
            delete pass;  // the pass manager owns what it is given
            return;
        }
        llvm::legacy::PassManager::add(pass);
    }
};

void keep_error(const llvm::DiagnosticInfo* info, void* text) {
    if (info->getSeverity() != llvm::DS_Error) return;
    llvm::raw_string_ostream out(*static_cast<std::string*>(text));
    llvm::DiagnosticPrinterRawOStream printer(out);
    info->print(printer);
}

// One kernel on its way through LLVM.
class Compilation {
public:
    Compilation(const loopir::Kernel& kernel, const TargetInfo& target, const std::string& symbol)
        : target_(target), kernel_(prepared(kernel, target)), plan_(kernel_, target) {
        times.prepare = watch_.lap();
        context_.setDiagnosticHandlerCallBack(keep_error, &errors_);
        module_ = std::make_unique<llvm::Module>("topstitch", context_);
        module_->setTargetTriple(native_triple());
        MachinePool::Loan machine(MachinePool::instance(), target);
        module_->setDataLayout(machine->createDataLayout());
        emit(symbol);
        times.emit = watch_.lap();
    }

    std::unique_ptr<llvm::MemoryBuffer> object() {
        return std::make_unique<llvm::SmallVectorMemoryBuffer>(generate(llvm::CodeGenFileType::ObjectFile),
                                                               /*RequiresNullTerminator=*/false);
    }
    std::string assembly() {
        const auto text = generate(llvm::CodeGenFileType::AssemblyFile);
        return std::string(text.begin(), text.end());
    }
    std::string llvm_ir() const {
        std::string text;
        llvm::raw_string_ostream out(text);
        module_->print(out, nullptr);
        return text;
    }
    const loopir::Kernel& kernel() const { return kernel_; }
    const LoopPlan& plan() const { return plan_; }

    CodegenTimes times;

private:
    void emit(const std::string& symbol) {
        llvm::Type* pointer = llvm::PointerType::get(context_, 0);
        llvm::Type* i64 = llvm::Type::getInt64Ty(context_);
        auto* type =
            llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {pointer, pointer, pointer, i64, i64}, false);
        auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, *module_);
        const char* names[] = {"buffers", "sizes", "scratch", "begin", "end"};
        for (unsigned i = 0; i < 5; ++i) function->getArg(i)->setName(names[i]);
        function->addFnAttr(llvm::Attribute::NoUnwind);
        // A spilled vector that crosses a page makes a loop ten times slower, and LLVM does not align the stack for
        // spills.
        function->addFnAttr(llvm::Attribute::getWithStackAlignment(function->getContext(), llvm::Align(64)));
        function->addFnAttr("target-cpu", target_.cpu);
        if (!target_.features.empty()) function->addFnAttr("target-features", target_.features);
        // Without these LLVM splits 512-bit vectors on CPUs that it tunes for 256 bits.
        const std::string bits = std::to_string(8 * target_.vector_bytes);
        function->addFnAttr("prefer-vector-width", bits);
        function->addFnAttr("min-legal-vector-width", bits);
        Emitter(kernel_, plan_, target_, *function).run();
        // A malformed module could bring the code generator down, and the process with it.
        if (verifying() && llvm::verifyModule(*module_, nullptr)) {
            std::string problem;
            llvm::raw_string_ostream out(problem);
            llvm::verifyModule(*module_, &out);
            throw InternalError(concat("LLVM: kernel ", kernel_.name, " is malformed: ", problem));
        }
    }

    static bool verifying() {
#if defined(NDEBUG)
        return setting_int(Setting::verify) != 0;
#else
        return true;
#endif
    }

    llvm::SmallVector<char, 0> generate(llvm::CodeGenFileType kind) {
        watch_.lap();
        MachinePool::Loan machine(MachinePool::instance(), target_);
        llvm::SmallVector<char, 0> bytes;
        llvm::raw_svector_ostream out(bytes);
        KernelPasses passes;
        if (machine->addPassesToEmitFile(passes, out, nullptr, kind)) {
            throw InternalError(concat("LLVM: no code generator for '", target_.cpu, "'"));
        }
        passes.run(*module_);
        if (!errors_.empty()) throw InternalError(concat("LLVM: kernel ", kernel_.name, ": ", errors_));
        times.codegen = watch_.lap();
        return bytes;
    }

    Stopwatch watch_;
    const TargetInfo& target_;
    const loopir::Kernel kernel_;
    const LoopPlan plan_;
    std::string errors_;
    llvm::LLVMContext context_;
    std::unique_ptr<llvm::Module> module_;
};

std::vector<LocalSize> local_sizes(const loopir::Kernel& kernel, const LoopPlan& plan) {
    const std::vector<Dim> params = loopir::size_params(kernel);
    std::vector<LocalSize> sizes;
    for (const LocalPlace& place : plan.locals()) {
        const loopir::BufferParam& buffer = kernel.buffers[static_cast<std::size_t>(place.buffer)];
        LocalSize size;
        size.factor = place.factor;
        size.element_bytes = static_cast<std::int64_t>(size_of(buffer.dtype));
        if (buffer.size.is_known()) {
            size.elements = buffer.size.value();
        } else {
            size.size_param = static_cast<int>(std::find(params.begin(), params.end(), buffer.size) - params.begin());
        }
        sizes.push_back(size);
    }
    return sizes;
}

}  // namespace

ObjectCode::ObjectCode() = default;
ObjectCode::~ObjectCode() = default;
ObjectCode::ObjectCode(ObjectCode&&) noexcept = default;
ObjectCode& ObjectCode::operator=(ObjectCode&&) noexcept = default;

loopir::Kernel prepared(const loopir::Kernel& kernel, const TargetInfo& target) {
    loopir::Kernel expanded = loopir::expand_math(kernel, loopir::MathTarget{target.fma});
    return target.fma && target.fuse ? loopir::contract(std::move(expanded)) : expanded;
}

ObjectCode generate_object(const loopir::Kernel& kernel, const TargetInfo& target, const std::string& symbol) {
    Compilation compilation(kernel, target, symbol);
    ObjectCode code;
    code.object = compilation.object();
    code.locals = local_sizes(compilation.kernel(), compilation.plan());
    code.granularity = compilation.plan().granularity();
    code.times = compilation.times;
    return code;
}

std::string generate_assembly(const loopir::Kernel& kernel, const TargetInfo& target) {
    return Compilation(kernel, target, "kernel").assembly();
}

std::string generate_llvm_ir(const loopir::Kernel& kernel, const TargetInfo& target) {
    return Compilation(kernel, target, "kernel").llvm_ir();
}

}  // namespace topstitch::cpu
