// The files of wrong kernels: each case begins with a line "//! name: reason".
// The headers that every case needs stand in front of each.
#pragma once

#include <string>
#include <vector>

namespace metal_sim_test {

struct Case {
    std::string name, reason, source;
};

inline const std::string preamble =
    "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n";

inline std::vector<Case> split_cases(const std::string& text) {
    const std::string mark = "//! ";
    std::vector<Case> cases;
    std::size_t begin = text.find("\n" + mark);
    while (begin != text.npos) {
        begin += 1 + mark.size();
        const std::size_t colon = text.find(": ", begin), line_end = text.find('\n', begin);
        const std::size_t end = text.find("\n" + mark, line_end);
        cases.push_back({text.substr(begin, colon - begin), text.substr(colon + 2, line_end - colon - 2),
                         preamble + text.substr(line_end, end - line_end)});
        begin = end;
    }
    return cases;
}

}  // namespace metal_sim_test
