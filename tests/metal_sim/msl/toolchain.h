// Runs the compiler: MSL text through the preprocessor, C++ text to a shared object, kept in a folder by what went in.
// See library.h.
#pragma once

#include <string>

#include "msl/library.h"

namespace metal_sim::msl {

// Where the files of one compilation lie.
class Workplace {
public:
    explicit Workplace(const CompileRequest& request);
    ~Workplace();  // leaves shared_object() only
    Workplace(const Workplace&) = delete;
    Workplace& operator=(const Workplace&) = delete;

    const std::string& shared_object() const { return shared_object_; }
    bool is_cached() const;
    // The text of the request after preprocessing. std::runtime_error with the compiler's words.
    std::string preprocess(const CompileRequest& request) const;
    // Makes shared_object() from C++ text.
    void build(const std::string& text, const CompileRequest& request) const;

private:
    std::string file(const std::string& suffix) const { return scratch_ + suffix; }

    std::string shared_object_;
    std::string scratch_;  // the beginning of names that no other compilation uses
};

}  // namespace metal_sim::msl
