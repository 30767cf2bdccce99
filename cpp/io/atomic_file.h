// Replaces a file as a whole: whoever reads its path sees the old contents or all of the new, whatever fails.
// Written beside it under another name, and renamed at the end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace topstitch {

class AtomicFile {
public:
    // `what` begins the messages, e.g. "save". IoError when a file cannot be made in the folder; UserError when the
    // path is that of a folder, a pipe or a device. A symbolic link is followed.
    AtomicFile(const std::filesystem::path& path, std::string_view what);
    // Without commit(), leaves the old file as it was and removes the new one.
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(const void* data, std::size_t bytes);
    // Waits until the contents are on the disk, and puts them into place.
    void commit();

private:
    [[noreturn]] void fail(const char* verb, int code);

    std::filesystem::path path_;
    std::filesystem::path temporary_;  // empty when there is none any more
    std::string subject_;
    int file_ = -1;
};

}  // namespace topstitch
