// What LLVM knows of a target beyond TargetInfo; only for the emitter and the code generator.
// Keeps LLVM's own types to forward declarations.
#pragma once

#include "cpu/jit.h"

namespace llvm {
class Target;
class Triple;
}  // namespace llvm

namespace topstitch::cpu {

const llvm::Target& llvm_target();    // LLVM's back end, initialised
const llvm::Triple& native_triple();  // the operating system and architecture of this process

// As target_named, but also for a CPU that cannot run here: to read its assembly.
TargetInfo described_target(const std::string& cpu);

// What decides between ways of emitting code.
struct TargetFeatures {
    bool x86 = false;
    bool rounding = false;      // floor, trunc, ... are instructions
    bool half = false;          // conversions between float16 and float32 are instructions
    bool masked_words = false;  // vector loads and stores of 32- and 64-bit elements under a mask
    // Sums of products of pairs are instructions, for vectors of up to so many lanes.
    bool int16_pairs = false;
    bool bfloat16_pairs = false;
    bool matrix_unit = false;
    unsigned vector_lanes = 4;  // of 32 bits
    bool masked_bytes = false;  // the same for 8- and 16-bit elements
};
TargetFeatures features_of(const TargetInfo& target);

}  // namespace topstitch::cpu
