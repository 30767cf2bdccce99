// See shared_event.h.
// One listener, which calls on a thread of Metal's, does for all events.
#include "metal/shared_event.h"

#import <Metal/Metal.h>

#include "metal/handle.h"

namespace topstitch::metal {

namespace {

MTLSharedEventListener* listener() {
    static auto* const shared = [[MTLSharedEventListener alloc] init];  // never released: events may outlive us
    return shared;
}

class SharedEvent : public OutsideEvent {
public:
    explicit SharedEvent(void* event) : event_(Handle::share(event)) {}

    std::uint64_t value() const override { return [get() signaledValue]; }
    void signal(std::uint64_t value) override {
        if (value > [get() signaledValue]) [get() setSignaledValue:value];
    }
    void notify(std::uint64_t value, std::function<void()> reached) override {
        @autoreleasepool {
            const std::function<void()> callback = std::move(reached);  // the block keeps a copy
            [get() notifyListener:listener() atValue:value block:^(id<MTLSharedEvent>, std::uint64_t) { callback(); }];
        }
    }

private:
    id<MTLSharedEvent> get() const { return static_cast<id<MTLSharedEvent>>(event_.get()); }

    Handle event_;
};

}  // namespace

std::shared_ptr<OutsideEvent> shared_event(void* event) {
    return std::make_shared<SharedEvent>(event);
}

}  // namespace topstitch::metal
