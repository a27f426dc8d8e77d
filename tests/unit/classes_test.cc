// A class has one owner: it declares at most 30 member functions, and its member functions are defined in one .cc file.
// A small reader of C++ counts them: it splits a file into tokens and knows where classes and functions begin and end.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/unit_test.h"

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostMembers = 30;

struct FoundClass {
  std::string name;  // with those of the classes around it: Outer::Inner
  size_t members = 0;
};
struct Found {
  std::vector<FoundClass> classes;
  std::set<std::string> defined;  // classes that this file defines member functions of, outside their bodies
};

bool is_word(const std::string& token) { return std::isalpha(static_cast<unsigned char>(token[0])) || token[0] == '_'; }

// Comments, directives and the contents of literals are left out; a literal is the token `"`.
std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> out;
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  bool line_begins = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\n') line_begins = true;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (c == '#' && line_begins) {
      while (i < text.size() && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
    } else if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
    } else if (c == '"' && !out.empty() && out.back().ends_with("R") && text[i - 1] == 'R') {
      const size_t open = text.find('(', i);
      const std::string end = ")" + text.substr(i + 1, open - i - 1) + "\"";
      i = std::min(text.find(end, open), text.size() - end.size()) + end.size();
      out.back() = "\"";
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c; ++i) i += text[i] == '\\';
      ++i;
      out.emplace_back("\"");
    } else if (in_word(c)) {
      size_t end = i;
      const bool number = std::isdigit(static_cast<unsigned char>(c));
      while (end < text.size() && (in_word(text[end]) || (number && (text[end] == '\'' || text[end] == '.')))) ++end;
      out.push_back(text.substr(i, end - i));
      i = end;
    } else if (text.compare(i, 2, "::") == 0 || text.compare(i, 2, "->") == 0) {
      out.push_back(text.substr(i, 2));
      i += 2;
    } else {
      out.emplace_back(1, c);
      ++i;
    }
    if (!std::isspace(static_cast<unsigned char>(c))) line_begins = false;
  }
  return out;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : tokens_(tokens_of(text)) {}

  Found read() {
    while (!ended()) read_statement("", nullptr);
    find_inner_classes();
    return std::move(found_);
  }

 private:
  bool ended() const { return at_ >= tokens_.size(); }
  const std::string& token(size_t i) const {
    static const std::string kNone = ";";
    return i < tokens_.size() ? tokens_[i] : kNone;
  }

  // What follows the bracket that closes the one here.
  size_t after_group(size_t i) const {
    size_t depth = 0;
    for (; i < tokens_.size(); ++i) {
      const std::string& t = tokens_[i];
      if (t == "(" || t == "[" || t == "{") ++depth;
      if ((t == ")" || t == "]" || t == "}") && --depth == 0) return i + 1;
    }
    return i;
  }

  // The same for `<`; shifts and comparisons of template arguments are in parentheses.
  size_t after_angles(size_t i) const {
    size_t depth = 0;
    while (i < tokens_.size()) {
      const std::string& t = tokens_[i];
      if (t == "(" || t == "[" || t == "{") {
        i = after_group(i);
        continue;
      }
      if (t == ";") return i;
      if (t == "<") ++depth;
      if (t == ">" && --depth == 0) return i + 1;
      ++i;
    }
    return i;
  }

  static bool is_macro(const std::string& t) {
    return t.size() > 1 &&
           std::ranges::all_of(t, [](char c) { return std::isupper(static_cast<unsigned char>(c)) || c == '_'; });
  }

  // The brace that begins the body of the class whose keyword is here, and its name; none if no body follows.
  std::optional<size_t> class_body(size_t i, std::string& name) const {
    if (token(i) != "class" && token(i) != "struct" && token(i) != "union") return std::nullopt;
    if (i > 0 && token(i - 1) == "enum") return std::nullopt;
    ++i;
    name.clear();
    while (true) {
      if (token(i) == "[" || token(i) == "(") {
        i = after_group(i);
      } else if (token(i) == "<" && !name.empty()) {
        i = after_angles(i);
      } else if (token(i) == "::") {
        name += token(i++);
      } else if (token(i) == "alignas" || (is_macro(token(i)) && token(i + 1) == "(")) {
        ++i;
      } else if (is_word(token(i)) && (name.empty() || name.ends_with("::"))) {
        name += token(i++);
      } else {
        break;
      }
    }
    if (token(i) == "final") ++i;
    if (token(i) == ":") {
      while (token(i) != "{" && token(i) != ";" && token(i) != ")") i = token(i) == "<" ? after_angles(i) : i + 1;
    }
    return token(i) == "{" ? std::optional(i) : std::nullopt;
  }

  // Reads a declaration of a namespace, or of the class `owner` whose member functions are counted in `members`.
  void read_statement(const std::string& owner, size_t* members) {
    if (token(at_) == ";" || token(at_) == "}") {
      ++at_;
      return;
    }
    if (members != nullptr && token(at_ + 1) == ":" && token(at_ + 2) != ":" &&
        (token(at_) == "public" || token(at_) == "private" || token(at_) == "protected")) {
      at_ += 2;
      return;
    }
    if (token(at_) == "namespace" || (token(at_) == "extern" && token(at_ + 1) == "\"")) {
      while (token(at_) != "{" && token(at_) != ";" && token(at_) != "=") ++at_;
      if (token(at_) == "{") {
        ++at_;  // its declarations are read as if they stood outside
        return;
      }
    }
    const size_t start = at_;
    bool may_be_function = true;  // nothing that only other declarations have has come yet
    std::optional<size_t> name;   // where the function's name ends
    while (!ended() && token(at_) != ";" && token(at_) != "}") {
      const std::string& t = token(at_);
      std::string inner;
      if (const auto body = class_body(at_, inner)) {
        at_ = *body;
        read_class(owner.empty() ? inner : owner + "::" + inner);
        may_be_function = false;
      } else if (t == "using" || t == "typedef" || t == "static_assert" || t == "enum" || t == "friend") {
        may_be_function = t == "friend" && members == nullptr;
        ++at_;
      } else if (t == "operator" && may_be_function && !name) {
        name = at_++;
        while (token(at_) != "(" || (token(at_ - 1) == "operator" && token(at_ + 1) == ")")) {
          at_ += token(at_) == "(" ? 2 : 1;
          if (ended()) return;
        }
      } else if (t == "=") {
        if (name && token(at_ + 1) == "delete") may_be_function = false;
        if (!name) may_be_function = false;
        ++at_;
      } else if (t == "<" && (is_word(token(at_ - 1)))) {
        at_ = after_angles(at_);
      } else if (t == "(") {
        const std::string& before = token(at_ - 1);
        static const std::set<std::string> kNotNames{"alignas",  "decltype",      "explicit", "noexcept",
                                                     "requires", "__attribute__", "sizeof"};
        if (may_be_function && !name && at_ > start && is_word(before) && !kNotNames.contains(before) &&
            !is_macro(before)) {
          name = at_ - 1;
        }
        at_ = after_group(at_);
      } else if (t == "[") {
        at_ = after_group(at_);
      } else if (t == "{") {
        const bool initializes_member = name && in_initializers(*name) && is_word(token(at_ - 1));
        const size_t open = std::exchange(at_, after_group(at_));
        if (!name || !may_be_function || initializes_member) continue;
        bodies_.emplace_back(open, at_);
        break;
      } else {
        ++at_;
      }
    }
    const bool has_body = token(at_ - 1) == "}" && name.has_value() && may_be_function;
    if (!name || !may_be_function) return;
    if (members != nullptr) {
      ++*members;
    } else if (has_body) {
      note_definition(*name);
    }
  }

  // Whether a constructor's list of initializers has begun between its name and here.
  bool in_initializers(size_t name) const {
    for (size_t i = name; i < at_;) {
      if (token(i) == ":") return true;
      i = token(i) == "(" || token(i) == "{" ? after_group(i) : i + 1;
    }
    return false;
  }

  void note_definition(size_t name) {
    if (token(name - 1) == "~") --name;
    std::string owner;
    for (size_t i = name; i > 0 && token(i - 1) == "::";) {
      --i;
      if (i > 0 && token(i - 1) == ">") {
        size_t depth = 0;
        do {
          --i;
          depth += token(i) == ">";
          depth -= token(i) == "<";
        } while (depth > 0 && i > 0);
      }
      if (i == 0 || !is_word(token(i - 1))) break;
      --i;
      owner = token(i) + (owner.empty() ? "" : "::" + owner);
    }
    if (!owner.empty()) found_.defined.insert(owner);
  }

  void read_class(const std::string& name) {
    const size_t end = after_group(at_++);
    size_t members = 0;
    while (at_ + 1 < end) read_statement(name, &members);
    at_ = end;
    found_.classes.push_back({name, members});
  }

  // Classes in the bodies of functions.
  void find_inner_classes() {
    for (size_t i = 0; i < bodies_.size(); ++i) {
      const auto [start, end] = bodies_[i];
      for (size_t in = start; in < end; ++in) {
        std::string name;
        const auto body = class_body(in, name);
        if (!body) continue;
        at_ = *body;
        read_class(name);
        in = at_ - 1;
      }
    }
  }

  std::vector<std::string> tokens_;
  size_t at_ = 0;
  std::vector<std::pair<size_t, size_t>> bodies_;  // of functions, in tokens
  Found found_;
};

std::map<std::string, size_t> members_in(const std::string& text) {
  std::map<std::string, size_t> out;
  for (const auto& [name, members] : Reader(text).read().classes) out[name] = members;
  return out;
}

// What each source file of redrive holds, by path.
std::map<std::string, Found> read_sources() {
  std::map<std::string, Found> out;
  for (const std::string folder : {"base", "logstore", "interceptors", "checkpoint", "supervisor"}) {
    REQUIRE_MESSAGE(fs::is_directory(folder), "run the tests in the source directory");
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      std::ostringstream text;
      text << std::ifstream(path).rdbuf();
      out[path.string()] = Reader(text.str()).read();
    }
  }
  return out;
}

void check_one_file_each(const std::map<std::string, std::set<std::string>>& files_by_class) {
  for (const auto& [name, files] : files_by_class) {
    std::string all;
    for (const auto& file : files) all += " " + file;
    CAPTURE(name);
    CAPTURE(all);
    CHECK_EQ(files.size(), 1);
  }
}

}  // namespace

TEST_CASE("the reader of classes counts the member functions that a class declares") {
  CHECK_EQ(members_in("struct Empty {}; class Declared; enum class Kind { a, b(); };"),
           std::map<std::string, size_t>{{"Empty", 0}});
  CHECK_EQ(members_in(R"(
#define NOT(x) struct NOT { void f(); };
    template <class T, typename U = std::vector<T>>
    class CAPABILITY("mutex") Parts final : public Base<T>, private Other {
     public:
      Parts(const Parts&) = delete;
      Parts() : a_{1}, b_(2), c_{f(), {3}} { struct Local { void one(); void two() {} }; }
      explicit Parts(int a) : a_(a) {}
      virtual ~Parts() = default;
      template <typename V>
      [[nodiscard]] std::map<T, V> get(std::function<void(int)> f = [](int x) { return void(x); }) const REQUIRES(mutex_);
      bool operator()(int) const { return a_ < 1 && "}" != std::string("{"); }
      bool operator<(const Parts&) const;
      operator bool() const;
      auto deduced() -> decltype(f());
      friend void friendly(int);
      friend bool operator==(const Parts&, const Parts&) = default;
      using Callback = void (*)(int);
      static_assert(sizeof(int) == 4);
      struct Inner { void of_inner(); int x; };
     private:
      alignas(64) int a_ = f(1), b_ = g();
      // void comment();
      std::function<bool(int)> c_ = [](int x) { return x > 0; };
      int d_ GUARDED_BY(mutex_) = 0;
      int e_[sizeof(int)], f_{g(1)};
      std::atomic<uint64_t> big_ = 1'000'000;
    };)"),
           std::map<std::string, size_t>{{"Parts", 8}, {"Parts::Inner", 1}, {"Local", 2}});
}

TEST_CASE("the reader of classes sees whose member functions a file defines") {
  const auto defined = [](const std::string& text) { return Reader(text).read().defined; };
  CHECK(defined("void free_function() { a::b(); } int A::data = f(); void A::declared(); auto x = A::f();").empty());
  CHECK_EQ(defined("namespace n { namespace { A::A(int x) : x_{x} { g(); } } B::~B() {} }"),
           std::set<std::string>{"A", "B"});
  CHECK_EQ(defined("template <typename T> std::vector<T> C<T>::f() const { return D::g(); } E::operator bool() const { "
                   "return 1; }"),
           std::set<std::string>{"C", "E"});
  CHECK_EQ(defined("n::Type Outer::Inner::f(std::function<void()> g = [] {}) { return h(); } G& G::operator=(G&&) { "
                   "return *this; }"),
           std::set<std::string>{"Outer::Inner", "G"});
}

TEST_CASE("no class has more than 30 member functions or spans two files") {
  const auto sources = read_sources();
  std::map<std::string, std::set<std::string>> places;
  size_t classes = 0;
  for (const auto& [path, found] : sources) {
    std::set<std::string> own;  // classes of this file
    for (const auto& [name, members] : found.classes) {
      own.insert(name);
      ++classes;
      CAPTURE(path);
      CAPTURE(name);
      CHECK_LE(members, kMostMembers);
    }
    for (const auto& name : found.defined) {
      if (!path.ends_with(".h") && !own.contains(name)) places[name].insert(path);
    }
  }
  CHECK_GT(classes, 300);  // the reader has read them
  CHECK_GT(places.size(), 50);
  check_one_file_each(places);
}

// A class in a header is one of the whole program: two of one name are one to the linker. Code inside tracees has a
// namespace of its own.
TEST_CASE("no two headers declare classes of one name") {
  std::map<std::string, std::set<std::string>> headers;
  for (const auto& [path, found] : read_sources()) {
    if (!path.ends_with(".h") || path.starts_with("interceptors/inprocess/")) continue;
    for (const auto& declared : found.classes) {
      if (declared.name.find("::") == std::string::npos) headers[declared.name].insert(path);
    }
  }
  CHECK_GT(headers.size(), 200);  // the reader has read them
  check_one_file_each(headers);
}
