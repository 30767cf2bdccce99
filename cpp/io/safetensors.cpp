// Reads and writes safetensors files by the rules of their documentation, all of which are checked.
// https://huggingface.co/docs/safetensors
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "core/checked.h"
#include "core/utf8.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

static_assert(std::endian::native == std::endian::little, "files hold arrays in the byte order of the machine");

constexpr std::uint64_t most_header_bytes = 100'000'000;  // of the format
constexpr std::size_t alignment = 64;                     // of the data; the format asks for 8
constexpr const char* metadata_key = "__metadata__";

std::string_view code_of(DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return "BOOL";
        case DType::int8:
            return "I8";
        case DType::int16:
            return "I16";
        case DType::int32:
            return "I32";
        case DType::int64:
            return "I64";
        case DType::uint8:
            return "U8";
        case DType::uint16:
            return "U16";
        case DType::uint32:
            return "U32";
        case DType::uint64:
            return "U64";
        case DType::float16:
            return "F16";
        case DType::bfloat16:
            return "BF16";
        case DType::float32:
            return "F32";
        case DType::float64:
            return "F64";
        case DType::complex64:
            return "C64";
    }
    return "";
}

std::optional<DType> dtype_of(std::string_view code) {
    for (const DType dtype : all_dtypes()) {
        if (code_of(dtype) == code) return dtype;
    }
    return std::nullopt;
}

std::string known_codes() {
    std::string text;
    for (const DType dtype : all_dtypes()) text += concat(text.empty() ? "" : ", ", code_of(dtype));
    return text;
}

// What a file that is no safetensors file may be, by its first bytes.
std::string guess(std::string_view start) {
    struct Signature {
        std::string_view bytes;
        const char* what;
    };
    using namespace std::string_view_literals;
    static constexpr std::array signatures = {
        Signature{"\x1f\x8b"sv, "a gzip archive; unpack it first"},
        Signature{"PK\x03\x04"sv, "a zip archive (as NumPy's .npz and PyTorch's .pt are)"},
        Signature{"\x80\x02"sv, "a Python pickle, which topstitch does not read, because loading one runs code"},
        Signature{"\x80\x03"sv, "a Python pickle, which topstitch does not read, because loading one runs code"},
        Signature{"\x80\x04"sv, "a Python pickle, which topstitch does not read, because loading one runs code"},
        Signature{"\x80\x05"sv, "a Python pickle, which topstitch does not read, because loading one runs code"},
        Signature{"\x93NUMPY"sv, "an array in NumPy's .npy format; read it with numpy.load"},
        Signature{"\x89HDF"sv, "an HDF5 file"},
        Signature{"GGUF"sv, "a GGUF file"},
        Signature{"\x28\xb5\x2f\xfd"sv, "a zstd archive; unpack it first"},
        Signature{"\xfd\x37zXZ"sv, "an xz archive; unpack it first"},
        Signature{"BZh"sv, "a bzip2 archive; unpack it first"},
        Signature{"topstitch graph"sv, "the text of a graph; read it with Graph.parse"},
        Signature{"{"sv, "a JSON text"},
        Signature{"\x7f"
                  "ELF"sv,
                  "a program"},
    };
    for (const Signature& signature : signatures) {
        if (start.starts_with(signature.bytes)) return concat("it looks like ", signature.what);
    }
    return "";
}

StoredArray read_entry(JsonReader& json, const std::string& name) {
    StoredArray array{name, DType::float32, {}, 0, 0};
    bool typed = false;
    bool shaped = false;
    bool placed = false;
    const std::string title = concat("array \"", printable(name), "\": ");
    json.object("to open what describes an array", [&](const std::string& key) {
        if (key == "dtype") {
            const std::string code = json.string("a dtype");
            const auto dtype = dtype_of(code);
            if (!dtype) {
                json.fail(
                    concat(title, "the dtype \"", printable(code), "\" is not known; topstitch has ", known_codes()));
            }
            array.dtype = *dtype;
            typed = true;
        } else if (key == "shape") {
            json.expect('[', "to open a shape");
            if (!json.accept(']')) {
                do {
                    if (array.shape.size() == static_cast<std::size_t>(max_rank)) {
                        json.fail(concat(title, "the shape has more than ", max_rank, " dims"));
                    }
                    array.shape.push_back(json.whole_number("a dim"));
                } while (json.accept(','));
                json.expect(']', "or ',' after a dim");
            }
            shaped = true;
        } else if (key == "data_offsets") {
            json.expect('[', "to open the offsets");
            array.begin = static_cast<std::uint64_t>(json.whole_number("an offset"));
            json.expect(',', "between the offsets");
            array.end = static_cast<std::uint64_t>(json.whole_number("an offset"));
            json.expect(']', "after the offsets");
            placed = true;
        } else {
            json.fail(concat(title, "the key \"", printable(key), "\" is not one of dtype, shape, data_offsets"));
        }
    });
    if (!typed || !shaped || !placed) {
        json.fail(concat(title, !typed ? "dtype" : !shaped ? "shape" : "data_offsets", " is missing"));
    }
    return array;
}

// The bytes that the elements take; none when they do not fit in 63 bits.
std::optional<std::uint64_t> bytes_of(const StoredArray& array) {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(array.dtype));
    bool empty = false;
    for (const std::int64_t size : array.shape) {
        empty = empty || size == 0;
        const auto product = checked_mul(bytes, std::max<std::int64_t>(size, 1));
        if (!product) return std::nullopt;
        bytes = *product;
    }
    return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

// The bytes of a bool count as true when they are not 0, whoever wrote them; the format knows 0 and 1 only.
NDArray packed(const NDArray& array) {
    if (array.dtype() != DType::boolean) return array.contiguous();
    const NDArray copy = array.copy();
    auto* bytes = copy.data_as<std::uint8_t>();
    for (std::int64_t k = 0; k < copy.size(); ++k) bytes[k] = bytes[k] != 0 ? 1 : 0;
    return copy;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, std::string_view what) : file_(path, what) {
    if (file_.size() == 0) throw UserError(concat(subject(), " is empty"));
    std::array<char, 16> start{};
    const std::size_t have = static_cast<std::size_t>(std::min<std::uint64_t>(file_.size(), start.size()));
    file_.read(0, start.data(), have);
    std::uint64_t length = 0;
    std::memcpy(&length, start.data(), sizeof(length));
    std::string problem;
    if (have < 10) {
        problem = concat("its ", have, " bytes are fewer than any such file has");
    } else if (length > most_header_bytes) {
        problem =
            concat("its header would have ", length, " bytes, more than the ", most_header_bytes, " of the format");
    } else if (start[8] != '{') {
        problem = "its header does not begin with '{'";
    } else if (length > file_.size() - 8) {
        throw UserError(concat(subject(), " is cut off: its header has ", length, " bytes, and the whole file ",
                               file_.size(), "; copy it again"));
    }
    if (!problem.empty()) {
        const std::string looks = guess(std::string_view(start.data(), have));
        throw UserError(concat(subject(), " is not a safetensors file: ", problem, looks.empty() ? "" : "; ", looks));
    }
    std::string header(static_cast<std::size_t>(length), '\0');
    file_.read(8, header.data(), header.size());
    data_begin_ = 8 + length;
    try {
        read_header(header);
        check_layout();
    } catch (const UserError& error) { throw UserError(concat(subject(), " is damaged: ", error.what())); }
}

void SafetensorsFile::read_header(std::string_view header) {
    JsonReader json(header);
    json.object("to open the header", [&](const std::string& name) {
        if (name == metadata_key) {
            json.object("to open the metadata",
                        [&](const std::string& key) { metadata_[key] = json.string("a string of the metadata"); });
            return;
        }
        arrays_.emplace(name, read_entry(json, name));
    });
    json.end();
}

// The arrays take all of the data, one after the other.
void SafetensorsFile::check_layout() const {
    std::vector<const StoredArray*> order;
    for (const auto& [name, array] : arrays_) order.push_back(&array);
    std::sort(order.begin(), order.end(), [](const StoredArray* a, const StoredArray* b) {
        return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    const std::uint64_t data_bytes = file_.size() - data_begin_;
    std::uint64_t position = 0;
    for (const StoredArray* array : order) {
        const std::string title = concat("array \"", printable(array->name), "\" ");
        const auto bytes = bytes_of(*array);
        if (!bytes) {
            throw UserError(
                concat(title, "has the shape ", sizes_str(array->shape), ", whose size does not fit in 63 bits"));
        }
        if (array->end < array->begin || array->end - array->begin != *bytes) {
            throw UserError(concat(title, "lies at bytes ", array->begin, " to ", array->end, ", but ",
                                   name_of(array->dtype), sizes_str(array->shape), " takes ", *bytes, " bytes"));
        }
        if (array->begin != position) {
            throw UserError(concat(title, "begins at byte ", array->begin,
                                   " of the data, but the one before it ends at ", position,
                                   "; there must be no gap and no overlap"));
        }
        if (array->end > data_bytes) {
            throw UserError(concat(title, "ends at byte ", array->end, " of the data, but there are ", data_bytes,
                                   "; the file was cut off, copy it again"));
        }
        position = array->end;
    }
    if (position != data_bytes) {
        throw UserError(
            concat("the arrays end at byte ", position, " of the data, but there are ", data_bytes, " bytes"));
    }
}

NDArray SafetensorsFile::read(const StoredArray& array) const {
    NDArray result(array.dtype, array.shape);
    file_.read(data_begin_ + array.begin, result.data(), result.bytes());
    if (array.dtype == DType::boolean) {
        const auto* bytes = result.data_as<std::uint8_t>();
        if (std::any_of(bytes, bytes + result.size(), [](std::uint8_t byte) { return byte > 1; })) {
            throw UserError(concat(subject(), " is damaged: array \"", printable(array.name),
                                   "\" is bool, but has bytes other than 0 and 1"));
        }
    }
    return result;
}

void write_safetensors(const std::filesystem::path& path, std::string_view what,
                       const std::map<std::string, NDArray>& arrays, const Metadata& metadata) {
    // The widest elements first, so that each array is aligned to its own.
    std::vector<const std::pair<const std::string, NDArray>*> order;
    for (const auto& entry : arrays) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return size_of(a->second.dtype()) > size_of(b->second.dtype());
    });
    const std::string begin = concat("[", what, "] the name");
    std::string header = "{";
    if (!metadata.empty()) {
        header += concat('"', metadata_key, "\":{");
        for (const auto& [key, value] : metadata) {
            header += concat(header.back() == '{' ? "" : ",", json_string(key, begin.c_str()), ":");
            header += json_string(value, concat("[", what, "] the metadata ", key).c_str());
        }
        header += "}";
    }
    std::uint64_t position = 0;
    for (const auto* entry : order) {
        const auto& [name, array] = *entry;
        if (name == metadata_key) {
            throw UserError(concat("[", what, "] an array cannot be called \"", metadata_key,
                                   "\", which the format keeps for itself; rename it"));
        }
        std::string sizes;
        for (const std::int64_t size : array.shape()) sizes += concat(sizes.empty() ? "" : ",", size);
        header +=
            concat(header == "{" ? "" : ",", json_string(name, begin.c_str()), ":{\"dtype\":\"", code_of(array.dtype()),
                   "\",\"shape\":[", sizes, "],\"data_offsets\":[", position, ",", position + array.bytes(), "]}");
        position += array.bytes();
    }
    header += "}";
    header.append((alignment - (8 + header.size()) % alignment) % alignment, ' ');
    if (header.size() > most_header_bytes) {
        throw UserError(concat("[", what, "] ", path_text(path), " would have a header of ", header.size(),
                               " bytes, but the format allows ", most_header_bytes,
                               "; save fewer arrays, or shorter names, in one file"));
    }
    AtomicFile file(path, what);
    const std::uint64_t length = header.size();
    file.write(&length, sizeof(length));
    file.write(header.data(), header.size());
    for (const auto* entry : order) {
        const NDArray array = packed(entry->second);
        file.write(array.data(), array.bytes());
    }
    file.commit();
}

}  // namespace topstitch
