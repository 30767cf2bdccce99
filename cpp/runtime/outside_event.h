// An event of somebody else's, such as an MTLSharedEvent, that an Event of ours stands for.
// Its value is theirs to change as well as ours, so it is asked for and not remembered.
#pragma once

#include <cstdint>
#include <functional>

namespace topstitch {

class OutsideEvent {
public:
    virtual ~OutsideEvent() = default;
    virtual std::uint64_t value() const = 0;
    // Does nothing when `value` has been reached.
    virtual void signal(std::uint64_t value) = 0;
    // Calls `reached` once, on any thread, when `value` has been reached; perhaps at once.
    virtual void notify(std::uint64_t value, std::function<void()> reached) = 0;
};

}  // namespace topstitch
