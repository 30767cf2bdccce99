// The safetensors format: named arrays and a map of strings in one file, which holds nothing that could be run.
// Eight bytes with the length of the header, the header in JSON, the bytes of the arrays without a gap.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/input_file.h"
#include "topstitch/ndarray.h"

namespace topstitch {

using Metadata = std::map<std::string, std::string>;

struct StoredArray {
    std::string name;
    DType dtype = DType::float32;
    Sizes shape;
    std::uint64_t begin = 0;  // in the data that follows the header
    std::uint64_t end = 0;
};

// An opened file, whose header has been read and checked. No array is read before it is asked for.
class SafetensorsFile {
public:
    // `what` begins the messages. UserError with the reason when the file is not what it should be: every rule of the
    // format is checked, and no memory is taken that the size of the file does not justify. IoError from the system.
    SafetensorsFile(const std::filesystem::path& path, std::string_view what);

    const std::string& subject() const { return file_.subject(); }
    const Metadata& metadata() const { return metadata_; }
    const std::map<std::string, StoredArray>& arrays() const { return arrays_; }
    // The elements, in memory of their own.
    NDArray read(const StoredArray& array) const;

private:
    void read_header(std::string_view header);
    void check_layout() const;

    InputFile file_;
    std::uint64_t data_begin_ = 0;
    Metadata metadata_;
    std::map<std::string, StoredArray> arrays_;
};

// Replaces the file at `path` as a whole (AtomicFile). Arrays may have any strides; the same arrays and metadata give
// the same bytes. UserError for names that are not UTF-8 and for a header past 100 MB.
void write_safetensors(const std::filesystem::path& path, std::string_view what,
                       const std::map<std::string, NDArray>& arrays, const Metadata& metadata);

}  // namespace topstitch
