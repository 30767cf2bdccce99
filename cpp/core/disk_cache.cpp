// The files of the disk cache: a line that names the format, a checksum, then the value.
// POSIX calls where the standard library does not tell who owns a file; on Windows there is no disk cache yet.
#include "core/disk_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

#include "core/hash128.h"
#include "core/log.h"
#include "core/settings.h"
#include "topstitch/error.h"

#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace topstitch {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view magic = "topstitch cache 1\n";
constexpr std::size_t checksum_size = 32;
constexpr std::int64_t largest_value = std::int64_t{64} << 20;
constexpr auto refresh_after = std::chrono::hours(1);  // between two notes that a file is in use
constexpr auto stale_after = std::chrono::hours(1);    // of files that somebody was writing

// Another key than that of the file names, so that two values would have to collide twice.
std::string checksum(std::string_view key, std::string_view value) {
    Hash128 hash(0x746f707374697463ULL, 1);
    hash.add(key);
    hash.add(value);
    return hash.hex();
}

std::string file_name(std::string_view key) {
    Hash128 hash;
    hash.add(key);
    return hash.hex();
}

#if !defined(_WIN32)

constexpr std::size_t name_digits = 32;

// The hash of a key; while it is written, with a suffix.
bool is_our_name(const std::string& name) {
    const std::string digits = name.substr(0, name_digits);
    return digits.size() == name_digits && digits.find_first_not_of("0123456789abcdef") == std::string::npos &&
           (name.size() == name_digits || (name[name_digits] == '.' && name.ends_with(".tmp")));
}

class File {
public:
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    explicit operator bool() const { return descriptor_ >= 0; }
    int get() const { return descriptor_; }

private:
    int descriptor_;
};

// Ours, and writable by nobody else: machine code is read from there.
bool is_private_folder(const std::string& path) {
    struct stat info{};
    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
           (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> read_file(const std::string& path) {
    const File file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file) return std::nullopt;
    struct stat info{};
    if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || info.st_size > largest_value) {
        return std::nullopt;
    }
    std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return std::nullopt;
        done += static_cast<std::size_t>(count);
    }
    return bytes;
}

bool write_file(const std::string& path, std::string_view head, std::string_view check, std::string_view value) {
    const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return false;
    for (std::string_view part : {head, check, value}) {
        while (!part.empty()) {
            const ssize_t count = ::write(file.get(), part.data(), part.size());
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return false;
            part.remove_prefix(static_cast<std::size_t>(count));
        }
    }
    return true;
}

std::string environment(const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr ? text : "";
}

// The folder in which programs keep what they can make again.
std::string user_cache_folder() {
    const std::string xdg = environment("XDG_CACHE_HOME");
    if (!xdg.empty() && xdg.front() == '/') return xdg;
    const std::string home = environment("HOME");
    if (home.empty() || home.front() != '/') return "";
#if defined(__APPLE__)
    return home + "/Library/Caches";
#else
    return home + "/.cache";
#endif
}

#endif

}  // namespace

std::string disk_cache_folder() {
#if defined(_WIN32)
    return "";
#else
    const std::string wanted = setting(Setting::cache_dir);
    if (wanted == "off") return "";
    if (!wanted.empty()) return wanted;
    const std::string base = user_cache_folder();
    return base.empty() ? "" : base + "/topstitch";
#endif
}

#if defined(_WIN32)

std::optional<std::string> DiskCache::find(std::string_view) {
    return std::nullopt;
}
void DiskCache::store(std::string_view, std::string_view) {}

#else

std::string DiskCache::folder(bool create) {
    const std::string root = disk_cache_folder();
    if (root.empty()) return "";
    const std::string path = root + "/" + section_;
    if (create) {
        std::error_code ignored;
        fs::create_directories(fs::path(root).parent_path(), ignored);
        ::mkdir(root.c_str(), 0700);
        ::mkdir(path.c_str(), 0700);
    }
    if (is_private_folder(root) && is_private_folder(path)) return path;
    if (create && log_enabled(LogLevel::debug)) {
        log_line(LogLevel::debug, concat("kernels are not kept on disk: ", root,
                                         " cannot be made, or belongs to or is writable by somebody else"));
    }
    return "";
}

std::optional<std::string> DiskCache::find(std::string_view key) {
    const std::string where = folder(false);
    if (where.empty()) return std::nullopt;
    const std::string path = where + "/" + file_name(key);
    std::optional<std::string> bytes = read_file(path);
    if (!bytes) return std::nullopt;
    const std::size_t head = magic.size() + checksum_size;
    const std::string_view all = *bytes;
    if (all.size() < head || all.substr(0, magic.size()) != magic ||
        all.substr(magic.size(), checksum_size) != checksum(key, all.substr(head))) {
        ::unlink(path.c_str());  // damaged
        return std::nullopt;
    }
    std::error_code ignored;
    const fs::file_time_type now = fs::file_time_type::clock::now();
    if (now - fs::last_write_time(path, ignored) > refresh_after) fs::last_write_time(path, now, ignored);
    return bytes->substr(head);
}

void DiskCache::store(std::string_view key, std::string_view value) {
    if (static_cast<std::int64_t>(value.size()) > largest_value) return;
    const std::string where = folder(true);
    if (where.empty()) return;
    std::random_device random;
    const std::string path = where + "/" + file_name(key);
    const std::string temporary = concat(path, ".", ::getpid(), ".", random(), ".tmp");
    if (!write_file(temporary, magic, checksum(key, value), value) || ::rename(temporary.c_str(), path.c_str()) != 0) {
        ::unlink(temporary.c_str());  // a full disk, a read-only folder
        return;
    }
    const auto size = static_cast<std::int64_t>(value.size());
    const std::int64_t limit = std::max<std::int64_t>(setting_int(Setting::cache_megabytes), 0) << 20;
    if (written_.load() < 0 || written_.fetch_add(size) + size > limit / 16) trim(disk_cache_folder());
}

void DiskCache::trim(const std::string& root) {
    written_ = 0;
    struct Entry {
        fs::file_time_type used;
        std::int64_t bytes;
        fs::path path;
    };
    std::vector<Entry> entries;
    std::int64_t total = 0;
    std::error_code error;
    const fs::file_time_type now = fs::file_time_type::clock::now();
    for (fs::directory_iterator folder(root, error), end; !error && folder != end; folder.increment(error)) {
        if (!folder->path().filename().string().starts_with(kind_ + "-") || !is_private_folder(folder->path().string()))
            continue;
        std::error_code failed;
        for (fs::directory_iterator at(folder->path(), failed); !failed && at != end; at.increment(failed)) {
            // The folder may be one that holds other things of the user: only what has our names is ours.
            const std::string name = at->path().filename().string();
            std::error_code ignored;
            if (!is_our_name(name) || at->is_symlink(ignored) || !at->is_regular_file(ignored)) continue;
            const fs::file_time_type used = at->last_write_time(ignored);
            if (name.size() > name_digits) {  // being written, or left over
                if (now - used > stale_after) fs::remove(at->path(), ignored);
                continue;
            }
            entries.push_back({used, static_cast<std::int64_t>(at->file_size(ignored)), at->path()});
            total += entries.back().bytes;
        }
    }
    const std::int64_t limit = std::max<std::int64_t>(setting_int(Setting::cache_megabytes), 0) << 20;
    if (total <= limit) return;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
        if (total <= limit / 4 * 3) break;
        std::error_code ignored;
        if (fs::remove(entry.path, ignored)) total -= entry.bytes;
    }
}

#endif

}  // namespace topstitch
