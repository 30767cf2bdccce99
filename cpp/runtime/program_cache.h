// Compiled programs of the whole process, found by structure: two graphs that say the same share one.
// Bounded, least recently used first out; the key is a hash of everything that compiling depends on.
#pragma once

#include <memory>

#include "core/shared_cache.h"
#include "runtime/compiled_program.h"

namespace topstitch {

struct FoundProgram {
    std::shared_ptr<const CompiledProgram> program;
    bool found = false;  // it was there already
};

// The compiled form of `program`, made when there is none. Throws NeedsExactSizes as CompiledProgram does.
FoundProgram find_or_compile(Program program, const CompiledProgram::Hints& hints, const CompileOptions& options,
                             DeviceBackend& device);

CacheStats program_cache_stats();
void clear_program_cache();

}  // namespace topstitch
