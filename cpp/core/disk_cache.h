// A folder of byte strings by key, for compiled kernels: shared by processes, bounded, and never trusted blindly.
// Whatever is wrong with the folder or a file of it, there is just no cached value.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace topstitch {

// Values lie in <cache folder>/<kind>-<version>/, one file each, with a checksum. The folder is the setting cache_dir,
// else the user's cache folder; it must belong to the user and be writable by nobody else. The size of all sections
// together is bounded by the setting cache_megabytes, over all versions: those not used for longest go first.
class DiskCache {
public:
    DiskCache(std::string kind, const std::string& version) : kind_(std::move(kind)), section_(kind_ + "-" + version) {}

    std::optional<std::string> find(std::string_view key);
    // Written to a file of another name first, so that nobody reads half of it. Failing is not an error.
    void store(std::string_view key, std::string_view value);

private:
    // The section's folder, made if need be; empty when there is no cache.
    std::string folder(bool create);
    void trim(const std::string& root);

    std::string kind_;
    std::string section_;
    std::atomic<std::int64_t> written_{-1};  // bytes since the last trim; -1: not trimmed by this process yet
};

// The folder in use, for people; empty when there is none (the setting is "off", or no home).
std::string disk_cache_folder();

}  // namespace topstitch
