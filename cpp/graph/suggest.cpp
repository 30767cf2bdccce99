// Finds the closest name by edit distance (insertions, deletions, substitutions, swaps of neighbours).
// Long inputs are not worth a suggestion, which also bounds the time.
#include "graph/suggest.h"

#include <algorithm>

#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr std::size_t longest_name = 64;

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, substitution});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, previous);
        std::swap(previous, row);
    }
    return previous[b.size()];
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string did_you_mean(std::string_view given, const std::vector<std::string_view>& candidates) {
    if (given.empty() || given.size() > longest_name) return "";
    std::string_view best;
    std::size_t best_distance = std::max<std::size_t>(1, given.size() / 3) + 1;
    for (const std::string_view candidate : candidates) {
        // A name that continues the given one, or the reverse ("axes" for "axis" is near anyway).
        const bool extends = given.size() >= 3 && (candidate.starts_with(given) || given.starts_with(candidate));
        const bool close = (extends && candidate.size() >= 3) || equal_but_for_case(given, candidate);
        const std::size_t distance = close ? 1 : edit_distance(given, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best.empty() ? "" : concat("; did you mean '", best, "'?");
}

std::string quoted_list(const std::vector<std::string_view>& names) {
    if (names.empty()) return "none";
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += concat("'", names[i], "'");
    }
    return text;
}

}  // namespace topstitch
