// Products of packed blocks on x86's matrix unit: eight registers, each a tile of 16 rows of 64 bytes.
// Elements that have no parts are multiplied by a plain loop, which is there for the rare case and kept short.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>
#include <vector>

#include "cpu/emitter.h"
#include "loopir/matrix_parts.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::matrix_tile;
using loopir::MultiplyTiles;

namespace {

constexpr std::int64_t row_bytes = 64;
constexpr std::int64_t tile_bytes = matrix_tile * row_bytes;
constexpr std::int64_t bytes_of_sum = 4;

llvm::Intrinsic::ID instruction_of(DType rows, DType columns) {
    if (rows == DType::bfloat16) return llvm::Intrinsic::x86_tdpbf16ps;
    if (rows == DType::int8)
        return columns == DType::int8 ? llvm::Intrinsic::x86_tdpbssd : llvm::Intrinsic::x86_tdpbsud;
    return columns == DType::int8 ? llvm::Intrinsic::x86_tdpbusd : llvm::Intrinsic::x86_tdpbuud;
}

// Writes the product of some rows of tiles. Registers: their sums, the parts of the rows, and one for the columns. The
// unit has few spare registers when another thread runs on the same core: with seven in use it takes up to half longer
// than with six, and with eight twice as long.
class TileProduct {
public:
    TileProduct(CodeBuilder& code, const MultiplyTiles& product, int first_row, int rows, Value* sums)
        : code_(code), ir_(code.ir()), product_(product), first_row_(first_row), rows_(rows), sums_(sums) {}

    void start() {
        for_sums([&](int tile, Value*) { call(llvm::Intrinsic::x86_tilezero, {number8(tile)}); });
    }
    void load_sums() {
        for_sums([&](int tile, Value* place) {
            call(llvm::Intrinsic::x86_tileloadd64, {number8(tile), place, sums_stride()});
        });
    }
    void store_sums() {
        for_sums([&](int tile, Value* place) {
            call(llvm::Intrinsic::x86_tilestored64, {number8(tile), place, sums_stride()});
        });
    }
    // One group of steps, from these places on. Products of the parts p and q with p + q < parts are all that count.
    void add_step(Value* rows, Value* columns) {
        const std::int64_t width = product_.column_tiles * row_bytes;
        for (int i = 0; i < rows_; ++i) {
            for (int part = 0; part < product_.parts; ++part) {
                const int tile = part * product_.row_tiles + first_row_ + i;
                load(row_register(i, part), rows, tile * tile_bytes, row_bytes);
            }
        }
        for (int j = 0; j < product_.column_tiles; ++j) {
            for (int part = 0; part < product_.parts; ++part) {
                load(column_register(), columns, part * matrix_tile * width + j * row_bytes, width);
                for (int i = 0; i < rows_; ++i) {
                    for (int other = 0; part + other < product_.parts; ++other) {
                        call(
                            instruction_of(product_.rows_type, product_.columns_type),
                            {number8(sum_register(i, j)), number8(row_register(i, other)), number8(column_register())});
                    }
                }
            }
        }
    }

private:
    int sum_register(int i, int j) const { return i * product_.column_tiles + j; }
    int row_register(int i, int part) const { return sum_register(rows_, 0) + i * product_.parts + part; }
    int column_register() const { return row_register(rows_, 0); }
    Value* number8(int value) { return ir_.getInt8(static_cast<std::uint8_t>(value)); }
    Value* sums_stride() { return code_.number(product_.sums_row * bytes_of_sum); }

    template <typename Use>
    void for_sums(Use use) {
        for (int i = 0; i < rows_; ++i) {
            for (int j = 0; j < product_.column_tiles; ++j) {
                const std::int64_t at = ((first_row_ + i) * product_.sums_row + j) * matrix_tile * bytes_of_sum;
                use(sum_register(i, j), ir_.CreateConstGEP1_64(ir_.getInt8Ty(), sums_, static_cast<std::uint64_t>(at)));
            }
        }
    }
    void load(int tile, Value* from, std::int64_t at, std::int64_t stride) {
        Value* place = ir_.CreateConstGEP1_64(ir_.getInt8Ty(), from, static_cast<std::uint64_t>(at));
        call(llvm::Intrinsic::x86_tileloadd64, {number8(tile), place, code_.number(stride)});
    }
    void call(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> arguments) {
        ir_.CreateIntrinsic(ir_.getVoidTy(), id, arguments);
    }

    CodeBuilder& code_;
    llvm::IRBuilder<>& ir_;
    const MultiplyTiles& product_;
    int first_row_, rows_;
    Value* sums_;
};

// The same product of the elements themselves: for each word of the sum, its two columns of elements are made of their
// parts, and meet those of every row.
class PlainProduct {
public:
    PlainProduct(llvm::IRBuilder<>& ir, const MultiplyTiles& product, int lanes)
        : ir_(ir), product_(product), lanes_(static_cast<unsigned>(lanes)) {}

    // The elements of a word of each column: both halves of some lanes, then of the next ones.
    std::vector<Value*> columns(Value* words) {
        std::vector<Value*> elements;
        for (unsigned at = 0; at < width(); at += lanes_) {
            for (const int half : {0, 1}) elements.push_back(element(words, at, lanes_, column_part_words(), half));
        }
        return elements;
    }
    // Adds their products with a word of one row to the row's sums in memory.
    void add_word(Value* row_words, const std::vector<Value*>& columns, Value* sum) {
        std::array<Value*, 2> row{};
        for (const int half : {0, 1}) {
            row[static_cast<std::size_t>(half)] =
                ir_.CreateVectorSplat(lanes_, element(row_words, 0, 1, row_part_words(), half));
        }
        for (std::size_t vector = 0; 2 * vector < columns.size(); ++vector) {
            Value* place = ir_.CreateConstGEP1_64(ir_.getFloatTy(), sum, vector * lanes_);
            Value* total = ir_.CreateAlignedLoad(columns[0]->getType(), place, llvm::Align(4));
            for (std::size_t half = 0; half < 2; ++half)
                total = ir_.CreateFAdd(total, ir_.CreateFMul(row[half], columns[2 * vector + half]));
            ir_.CreateAlignedStore(total, place, llvm::Align(4));
        }
    }
    unsigned width() const { return static_cast<unsigned>(product_.column_tiles * matrix_tile); }

private:
    std::uint64_t row_part_words() const { return static_cast<std::uint64_t>(product_.row_tiles * tile_bytes / 4); }
    std::uint64_t column_part_words() const {
        return static_cast<std::uint64_t>(product_.column_tiles * tile_bytes / 4);
    }

    // As loopir::value_of_parts, for so many elements from word `first` on.
    Value* element(Value* words, std::uint64_t first, unsigned lanes, std::uint64_t part_words, int half) {
        const auto in_lanes = [&](llvm::Type* scalar) {
            return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, lanes);
        };
        llvm::Type* integers = in_lanes(ir_.getInt32Ty());
        llvm::Type* floats = in_lanes(ir_.getFloatTy());
        const auto number = [&](std::uint32_t value) { return llvm::ConstantInt::get(integers, value); };
        std::array<Value*, loopir::most_matrix_parts> bits{};
        for (int part = 0; part < product_.parts; ++part) {
            const std::uint64_t at = static_cast<std::uint64_t>(part) * part_words + first;
            Value* place = ir_.CreateConstGEP1_64(ir_.getInt32Ty(), words, at);
            Value* word = ir_.CreateAlignedLoad(integers, place, llvm::Align(4));
            bits[static_cast<std::size_t>(part)] =
                half == 0 ? ir_.CreateShl(word, number(16)) : ir_.CreateAnd(word, number(0xffff0000));
        }
        const auto real = [&](Value* value) { return ir_.CreateBitCast(value, floats); };
        Value* first_part = real(bits[0]);
        if (product_.parts == 1) return first_part;
        Value* sum = ir_.CreateFAdd(ir_.CreateFAdd(first_part, real(bits[1])), real(bits[2]));
        Value* whole = real(ir_.CreateOr(bits[1], ir_.CreateLShr(bits[2], number(16))));
        return ir_.CreateSelect(ir_.CreateFCmpUNO(first_part, first_part), whole, sum);
    }

    llvm::IRBuilder<>& ir_;
    const MultiplyTiles& product_;
    unsigned lanes_;
};

// Runs `body` for the numbers from 0 up to `end`, which may be none.
template <typename Body>
void count(CodeBuilder& code, Value* end, Body body) {
    llvm::IRBuilder<>& ir = code.ir();
    llvm::BasicBlock* before = ir.GetInsertBlock();
    llvm::BasicBlock* loop = code.new_block("step");
    llvm::BasicBlock* after = code.new_block("done");
    ir.CreateCondBr(ir.CreateICmpSGT(end, code.number(0)), loop, after);
    ir.SetInsertPoint(loop);
    llvm::PHINode* counter = ir.CreatePHI(code.i64(), 2, "counter");
    counter->addIncoming(code.number(0), before);
    code.push_scope();
    body(counter);
    code.pop_scope();
    Value* next = ir.CreateAdd(counter, code.number(1));
    counter->addIncoming(next, ir.GetInsertBlock());
    ir.CreateCondBr(ir.CreateICmpSLT(next, end), loop, after);
    ir.SetInsertPoint(after);
}

}  // namespace

// All tiles are whole: palette 1, 16 rows of 64 bytes in each of eight registers.
void Emitter::configure_tiles() {
    if (!scalar_.features().matrix_unit)
        throw InternalError(
            concat("LLVM: kernel ", kernel_.name, " is for a matrix unit, which '", target_.cpu, "' does not have"));
    std::array<std::uint8_t, 64> shapes{};
    shapes[0] = 1;
    for (std::size_t tile = 0; tile < 8; ++tile) {
        shapes[16 + 2 * tile] = static_cast<std::uint8_t>(row_bytes);
        shapes[48 + tile] = static_cast<std::uint8_t>(matrix_tile);
    }
    llvm::Constant* data = llvm::ConstantDataArray::get(ir_.getContext(), shapes);
    auto* place = new llvm::GlobalVariable(*function_.getParent(), data->getType(), true,
                                           llvm::GlobalValue::PrivateLinkage, data, "tile_shapes");
    place->setAlignment(llvm::Align(64));
    ir_.CreateIntrinsic(ir_.getVoidTy(), llvm::Intrinsic::x86_ldtilecfg, {place});
}

Value* Emitter::uniform(const loopir::Index& index) {
    return sum_of(lane_index(index, CopyId(axes_.size(), 0)).base);
}

void Emitter::emit(const MultiplyTiles& product) {
    const CopyId none(axes_.size(), 0);
    Value* rows = place(product.rows, product.rows_at, none).pointer;
    Value* columns = place(product.columns, product.columns_at, none).pointer;
    Value* sums = place(product.sums, product.sums_at, none).pointer;
    Value* steps = uniform(product.steps);
    const auto condition = [&](loopir::ValueId id) { return value_in(copies(id), none, 1); };
    const std::int64_t rows_step = product.parts * product.row_tiles * tile_bytes;
    const std::int64_t columns_step = product.parts * product.column_tiles * tile_bytes;
    const auto at = [&](Value* from, Value* number, std::int64_t bytes) {
        return ir_.CreateGEP(ir_.getInt8Ty(), from, ir_.CreateMul(number, code_.number(bytes)));
    };

    const auto multiply = [&] {
        const int rows_together = product.parts == 1 ? product.row_tiles : 1;
        for (int first = 0; first < product.row_tiles; first += rows_together) {
            TileProduct tiles(code_, product, first, rows_together, sums);
            if (product.adds == loopir::no_value) {
                tiles.start();
            } else {
                either(condition(product.adds), [&] { tiles.load_sums(); }, [&] { tiles.start(); });
            }
            count(code_, steps,
                  [&](Value* step) { tiles.add_step(at(rows, step, rows_step), at(columns, step, columns_step)); });
            tiles.store_sums();
        }
    };
    const auto multiply_plainly = [&] {
        const int lanes = target_.vector_bytes / 4;
        PlainProduct plain(ir_, product, lanes);
        llvm::Type* vector = llvm::FixedVectorType::get(ir_.getFloatTy(), static_cast<unsigned>(lanes));
        const auto sum_of_row = [&](Value* row) { return at(sums, row, product.sums_row * bytes_of_sum); };
        Value* height = code_.number(product.row_tiles * matrix_tile);
        const auto clear = [&] {
            count(code_, height, [&](Value* row) {
                for (unsigned j = 0; j < plain.width(); j += static_cast<unsigned>(lanes)) {
                    Value* to = ir_.CreateConstGEP1_64(ir_.getFloatTy(), sum_of_row(row), j);
                    ir_.CreateAlignedStore(llvm::Constant::getNullValue(vector), to, llvm::Align(4));
                }
            });
        };
        if (product.adds == loopir::no_value) {
            clear();
        } else {
            either(condition(product.adds), [] {}, clear);
        }
        count(code_, steps, [&](Value* step) {
            count(code_, code_.number(matrix_tile), [&](Value* word) {
                Value* column_words = at(at(columns, step, columns_step), word, product.column_tiles * row_bytes);
                const std::vector<Value*> elements = plain.columns(column_words);
                Value* row_words = at(at(rows, step, rows_step), word, 4);
                count(code_, height,
                      [&](Value* row) { plain.add_word(at(row_words, row, row_bytes), elements, sum_of_row(row)); });
            });
        });
    };
    if (product.plain == loopir::no_value) return multiply();
    either(condition(product.plain), multiply_plainly, multiply);
}

}  // namespace topstitch::cpu
