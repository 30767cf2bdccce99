// Collects the symbolic sizes of a kernel: the size arguments of its compiled form.
// The loops come first: buffer sizes that no code depends on must not renumber what code uses.
#include <algorithm>

#include "loopir/kernel.h"

namespace topstitch::loopir {

namespace {

class Collector {
public:
    void add(const Dim& dim) {
        if (dim.is_known() || dim.is_unknown()) return;
        if (std::find(dims_.begin(), dims_.end(), dim) == dims_.end()) dims_.push_back(dim);
    }

    void add(const Index& index) {
        for (const Index::Part& part : index.parts()) {
            add(part.coefficient);
            if (part.term.inner != nullptr) {
                add(*part.term.inner);
                add(part.term.extent);
            }
        }
        add(index.constant());
    }

    void add(const Kernel& kernel, const Block& block) {
        for (const Stmt& stmt : block.stmts) {
            if (const auto* let = std::get_if<Let>(&stmt)) {
                add(kernel.instrs[static_cast<std::size_t>(let->value)].index);
            } else if (const auto* store = std::get_if<Store>(&stmt)) {
                add(store->index);
            } else if (const auto* product = std::get_if<MultiplyTiles>(&stmt)) {
                for (const Index* index : {&product->rows_at, &product->columns_at, &product->sums_at, &product->steps})
                    add(*index);
            } else if (const auto* loop = std::get_if<Loop>(&stmt)) {
                add(loop->extent);
                if (loop->limit) add(*loop->limit);
                for (const Block& body : loop->body) add(kernel, body);
            }
        }
    }

    void add_sizes(const Kernel& kernel, bool local) {
        for (const BufferParam& buffer : kernel.buffers) {
            if ((buffer.role == BufferParam::Role::local) == local) add(buffer.size);
        }
    }

    std::vector<Dim> take() { return std::move(dims_); }

private:
    std::vector<Dim> dims_;
};

}  // namespace

std::vector<Dim> size_params(const Kernel& kernel) {
    Collector collector;
    collector.add(kernel, kernel.body);
    collector.add_sizes(kernel, true);
    collector.add_sizes(kernel, false);
    return collector.take();
}

}  // namespace topstitch::loopir
