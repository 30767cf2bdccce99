// Places, sharing and hoisting of index arithmetic.
// A value belongs to the depth of its block; code goes to the end of the deepest block among its operands'.
#include "cpu/code_builder.h"

#include <algorithm>

namespace topstitch::cpu {

namespace {

// Keys of what is not an LLVM binary operation.
constexpr unsigned key_element = 1000;
constexpr unsigned key_resize = 1001;
constexpr unsigned key_splat = 1002;
constexpr unsigned key_below = 1003;
constexpr unsigned key_at_least_one = 1004;
constexpr unsigned key_product = 1005;

bool is_number(const llvm::Value* value, std::int64_t number) {
    const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
    return constant != nullptr && constant->getSExtValue() == number;
}

}  // namespace

CodeBuilder::CodeBuilder(llvm::Function& function) : function_(function), ir_(function.getContext()) {
    open_level(nullptr);
    ir_.SetInsertPoint(new_block("entry"));
}

int CodeBuilder::depth_of(llvm::Value* value) const {
    const auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
    return instruction == nullptr ? 0 : depths_.lookup(const_cast<llvm::BasicBlock*>(instruction->getParent()));
}

llvm::BasicBlock* CodeBuilder::new_block(const char* name) {
    llvm::BasicBlock* block = llvm::BasicBlock::Create(function_.getContext(), name, &function_);
    depths_[block] = depth();
    return block;
}

void CodeBuilder::open_level(llvm::BasicBlock* preheader) {
    Level level;
    level.preheader = preheader;
    level.scopes.emplace_back();
    levels_.push_back(std::move(level));
}

void CodeBuilder::close_level() {
    levels_.pop_back();
}

void CodeBuilder::set_counter(llvm::PHINode* counter, llvm::Value* begin, std::int64_t step) {
    Level& level = levels_.back();
    level.counter = counter;
    level.begin = begin;
    level.step = step;
}

void CodeBuilder::step_derived() {
    for (const auto& [product, increment] : levels_.back().derived) {
        product->addIncoming(ir_.CreateAdd(product, increment), ir_.GetInsertBlock());
    }
}

llvm::Value* CodeBuilder::stepped_product(llvm::Value* counter, llvm::Value* factor) {
    const auto number_of_level = static_cast<std::size_t>(std::min(depth(), depth_of(counter)));
    if (levels_[number_of_level].counter != counter) return nullptr;
    if (depth_of(factor) >= static_cast<int>(number_of_level)) return nullptr;
    const Key key{key_product, counter->getType(), counter, factor};
    Memo& memo = levels_[number_of_level].scopes.front();
    if (const auto found = memo.find(key); found != memo.end()) return found->second;
    llvm::Value* start = mul(levels_[number_of_level].begin, factor);
    llvm::Value* increment = mul(number(levels_[number_of_level].step), factor);
    Level& level = levels_[number_of_level];
    auto* product = llvm::PHINode::Create(counter->getType(), 2, "", std::next(level.counter->getIterator()));
    product->addIncoming(start, level.preheader);
    level.derived.emplace_back(product, increment);
    memo[key] = product;
    return product;
}

template <typename Make>
llvm::Value* CodeBuilder::shared(unsigned operation, llvm::Type* type, llvm::Value* a, llvm::Value* b, Make make) {
    // What was computed in a loop that has ended counts as computed here.
    const int home = std::min(depth(), std::max(depth_of(a), b == nullptr ? 0 : depth_of(b)));
    const Key key{operation, type, a, b};
    for (std::size_t level = static_cast<std::size_t>(home); level < levels_.size(); ++level) {
        for (const Memo& memo : levels_[level].scopes) {
            const auto found = memo.find(key);
            if (found != memo.end()) return found->second;
        }
    }
    if (home == depth()) {
        llvm::Value* made = make();
        levels_.back().scopes.back()[key] = made;
        return made;
    }
    Level& inner = levels_[static_cast<std::size_t>(home) + 1];
    const llvm::IRBuilderBase::InsertPointGuard guard(ir_);
    ir_.SetInsertPoint(inner.preheader->getTerminator());
    llvm::Value* made = make();
    inner.scopes.front()[key] = made;
    return made;
}

llvm::Value* CodeBuilder::binary(llvm::Instruction::BinaryOps operation, llvm::Value* a, llvm::Value* b) {
    return shared(operation, a->getType(), a, b, [&] { return ir_.CreateBinOp(operation, a, b); });
}

llvm::Value* CodeBuilder::add(llvm::Value* a, llvm::Value* b) {
    if (is_number(a, 0)) return b;
    if (is_number(b, 0)) return a;
    return binary(llvm::Instruction::Add, a, b);
}

llvm::Value* CodeBuilder::sub(llvm::Value* a, llvm::Value* b) {
    return is_number(b, 0) ? a : binary(llvm::Instruction::Sub, a, b);
}

llvm::Value* CodeBuilder::mul(llvm::Value* a, llvm::Value* b) {
    if (is_number(a, 1)) return b;
    if (is_number(b, 1)) return a;
    if (is_number(a, 0) || is_number(b, 0)) return llvm::Constant::getNullValue(a->getType());
    if (llvm::Value* product = stepped_product(a, b)) return product;
    if (llvm::Value* product = stepped_product(b, a)) return product;
    return binary(llvm::Instruction::Mul, a, b);
}

llvm::Value* CodeBuilder::quotient(llvm::Value* a, llvm::Value* b) {
    return is_number(b, 1) ? a : binary(llvm::Instruction::UDiv, a, b);
}

llvm::Value* CodeBuilder::remainder(llvm::Value* a, llvm::Value* b) {
    return binary(llvm::Instruction::URem, a, b);
}

// The complement of a negative number is not negative: floor(a / b) = ~(~a / b).
llvm::Value* CodeBuilder::floor_quotient(llvm::Value* a, llvm::Value* b) {
    if (is_number(b, 1)) return a;
    llvm::Value* last_bit = llvm::ConstantInt::get(a->getType(), a->getType()->getScalarSizeInBits() - 1);
    llvm::Value* sign = binary(llvm::Instruction::AShr, a, last_bit);
    return binary(llvm::Instruction::Xor, quotient(binary(llvm::Instruction::Xor, a, sign), b), sign);
}

llvm::Value* CodeBuilder::at_least_one(llvm::Value* a) {
    return shared(key_at_least_one, a->getType(), a, nullptr,
                  [&] { return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, number(1)); });
}

llvm::Value* CodeBuilder::element(llvm::Type* type, llvm::Value* pointer, llvm::Value* offset) {
    if (is_number(offset, 0)) return pointer;
    return shared(key_element, type, pointer, offset, [&] { return ir_.CreateGEP(type, pointer, offset); });
}

llvm::Value* CodeBuilder::resize(llvm::Value* a, llvm::Type* type) {
    if (a->getType() == type) return a;
    return shared(key_resize, type, a, nullptr, [&] { return ir_.CreateSExtOrTrunc(a, type); });
}

llvm::Value* CodeBuilder::splat(llvm::Value* scalar, int lanes) {
    llvm::Type* type = llvm::FixedVectorType::get(scalar->getType(), static_cast<unsigned>(lanes));
    return shared(key_splat, type, scalar, nullptr,
                  [&] { return ir_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar); });
}

llvm::Value* CodeBuilder::counting(llvm::Type* scalar_type, int lanes) {
    std::vector<llvm::Constant*> numbers;
    for (int lane = 0; lane < lanes; ++lane) {
        numbers.push_back(llvm::ConstantInt::get(scalar_type, static_cast<std::uint64_t>(lane)));
    }
    return llvm::ConstantVector::get(numbers);
}

llvm::Value* CodeBuilder::below(llvm::Value* start, llvm::Value* end, int lanes) {
    llvm::Value* left = sub(end, start);
    return shared(
        key_below, llvm::FixedVectorType::get(ir_.getInt1Ty(), static_cast<unsigned>(lanes)), left, nullptr, [&] {
            // In 32 bits, where the comparison costs least; more than `lanes` does not matter.
            llvm::Value* capped = ir_.CreateSelect(ir_.CreateICmpSLT(left, number(lanes)), left, number(lanes));
            llvm::Value* narrow = ir_.CreateTrunc(capped, ir_.getInt32Ty());
            return ir_.CreateICmpSLT(counting(ir_.getInt32Ty(), lanes),
                                     ir_.CreateVectorSplat(static_cast<unsigned>(lanes), narrow));
        });
}

// A square matrix of a power of two rows. Each step exchanges, for one bit, the elements whose row and column differ in
// it: few of these shuffles cross the 128-bit halves of registers.
void CodeBuilder::transpose(llvm::SmallVectorImpl<llvm::Value*>& rows) {
    const auto size = static_cast<int>(rows.size());
    for (int bit = 1; bit < size; bit *= 2) {
        llvm::SmallVector<int, 16> upper, lower;
        for (int lane = 0; lane < size; ++lane) {
            upper.push_back((lane & bit) == 0 ? lane : size + lane - bit);
            lower.push_back((lane & bit) == 0 ? lane + bit : size + lane);
        }
        for (int row = 0; row < size; ++row) {
            if ((row & bit) != 0) continue;
            llvm::Value*& first = rows[static_cast<std::size_t>(row)];
            llvm::Value*& second = rows[static_cast<std::size_t>(row + bit)];
            llvm::Value* exchanged = ir_.CreateShuffleVector(first, second, upper);
            second = ir_.CreateShuffleVector(first, second, lower);
            first = exchanged;
        }
    }
}

}  // namespace topstitch::cpu
