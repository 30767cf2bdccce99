// Threads of our own: they take no signals, and nobody waits for them at the end of the process.
// For what may fail to start without being an error.
#pragma once

#include <functional>

namespace topstitch {

// Starts `work` on a detached thread that blocks all signals: they belong to the program's own threads (Python handles
// them in the main one). False when the system has no thread to give.
bool start_thread(std::function<void()> work);

}  // namespace topstitch
