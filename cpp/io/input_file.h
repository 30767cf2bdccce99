// A regular file, opened for reading at given offsets.
// The length is that of the moment of opening; a file that shrinks meanwhile gives an error, not a signal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace topstitch {

// The path between quotes, for messages.
std::string path_text(const std::filesystem::path& path);

class InputFile {
public:
    // `what` begins the messages, e.g. "load_graph". IoError when there is no such file, or it cannot be read;
    // UserError when it is a directory, a pipe or a device.
    InputFile(const std::filesystem::path& path, std::string_view what);
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    std::uint64_t size() const { return size_; }
    // All of `bytes` from `offset` on.
    void read(std::uint64_t offset, void* data, std::size_t bytes) const;
    // "load_graph: "/x/y"": how messages about this file begin.
    const std::string& subject() const { return subject_; }

private:
    int file_ = -1;
    std::uint64_t size_ = 0;
    std::string subject_;
};

}  // namespace topstitch
