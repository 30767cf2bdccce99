// "Did you mean ...?": the closest known name to a misspelt one.
// For error messages only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace topstitch {

// "; did you mean 'axis'?", or "" when no candidate is close.
std::string did_you_mean(std::string_view given, const std::vector<std::string_view>& candidates);

// "'a', 'b' and 'c'"; "none" when empty.
std::string quoted_list(const std::vector<std::string_view>& names);

}  // namespace topstitch
