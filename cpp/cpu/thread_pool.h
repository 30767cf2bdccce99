// A fork-join pool for loops of a few microseconds: workers spin briefly, then sleep.
// The calling thread works too. One call uses the pool at a time: meanwhile those of other threads run serially.
#pragma once

#include <cstdint>
#include <functional>

namespace topstitch::cpu {

// Runs body(thread, begin, end) over [0, count) in contiguous chunks, the boundaries multiples of
// `granularity`, on at most `max_threads` threads (0: the setting), numbered from 0. Which thread runs which chunks
// depends on timing. `body` must not throw. A call from inside a body runs serially, as one chunk.
void parallel_for(std::int64_t count, std::int64_t granularity, int max_threads,
                  const std::function<void(int thread, std::int64_t begin, std::int64_t end)>& body);

// The number of threads that parallel_for uses at most: the setting num_threads, else the usable cores.
int num_threads();
void set_num_threads(int threads);

}  // namespace topstitch::cpu
