// LLVM's IRBuilder with a sense of place: index arithmetic and broadcasts go to the outermost loop that has their
// operands, equal ones are shared, products with loop counters are stepped. So LLVM's passes for that can be left out.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

namespace topstitch::cpu {

class CodeBuilder {
public:
    explicit CodeBuilder(llvm::Function& function);

    llvm::IRBuilder<>& ir() { return ir_; }
    llvm::Type* i64() { return ir_.getInt64Ty(); }
    llvm::ConstantInt* number(std::int64_t value) { return ir_.getInt64(static_cast<std::uint64_t>(value)); }

    // --- Places. The depth of code is the number of LLVM loops around it.
    int depth() const { return static_cast<int>(levels_.size()) - 1; }
    int depth_of(llvm::Value* value) const;
    llvm::BasicBlock* new_block(const char* name);  // belongs to the present depth
    // From here on code belongs to a loop whose header follows `preheader`, which ends in a branch.
    void open_level(llvm::BasicBlock* preheader);
    // The counter of the loop just opened: a phi node that starts at `begin` and grows by `step`.
    void set_counter(llvm::PHINode* counter, llvm::Value* begin, std::int64_t step);
    // At the end of the loop's body: steps what was derived from the counter.
    void step_derived();
    void close_level();
    // What is shared until the matching pop is forgotten then: for code that runs conditionally.
    void push_scope() { levels_.back().scopes.emplace_back(); }
    void pop_scope() { levels_.back().scopes.pop_back(); }

    // --- Shared and hoisted arithmetic on int64 (or vectors of integers).
    llvm::Value* add(llvm::Value* a, llvm::Value* b);
    llvm::Value* sub(llvm::Value* a, llvm::Value* b);
    llvm::Value* mul(llvm::Value* a, llvm::Value* b);
    llvm::Value* quotient(llvm::Value* a, llvm::Value* b);        // non-negative by positive
    llvm::Value* remainder(llvm::Value* a, llvm::Value* b);       // likewise
    llvm::Value* floor_quotient(llvm::Value* a, llvm::Value* b);  // of any number by a positive one
    llvm::Value* at_least_one(llvm::Value* a);                    // signed maximum of `a` and 1
    llvm::Value* element(llvm::Type* type, llvm::Value* pointer, llvm::Value* offset);  // &pointer[offset]
    llvm::Value* resize(llvm::Value* a, llvm::Type* type);  // signed extension or truncation
    llvm::Value* splat(llvm::Value* scalar, int lanes);
    void transpose(llvm::SmallVectorImpl<llvm::Value*>& rows);  // a square of a power of two rows, in place
    llvm::Value* counting(llvm::Type* scalar_type, int lanes);  // 0, 1, 2, ...
    // 0 <= start + lane < end, for each lane.
    llvm::Value* below(llvm::Value* start, llvm::Value* end, int lanes);

private:
    // Operation, type, operands.
    using Key = std::tuple<unsigned, llvm::Type*, llvm::Value*, llvm::Value*>;
    using Memo = std::map<Key, llvm::Value*>;
    struct Level {
        llvm::BasicBlock* preheader = nullptr;
        std::vector<Memo> scopes;  // the first also holds what was hoisted to the preheader
        llvm::PHINode* counter = nullptr;
        llvm::Value* begin = nullptr;
        std::int64_t step = 0;
        std::vector<std::pair<llvm::PHINode*, llvm::Value*>> derived;  // and their increments
    };
    template <typename Make>
    llvm::Value* shared(unsigned operation, llvm::Type* type, llvm::Value* a, llvm::Value* b, Make make);
    // counter * factor, as a number that grows along with the counter; null if `counter` is none.
    llvm::Value* stepped_product(llvm::Value* counter, llvm::Value* factor);
    llvm::Value* binary(llvm::Instruction::BinaryOps operation, llvm::Value* a, llvm::Value* b);

    llvm::Function& function_;
    llvm::IRBuilder<> ir_;
    llvm::DenseMap<llvm::BasicBlock*, int> depths_;
    std::vector<Level> levels_;
};

}  // namespace topstitch::cpu
