// How listings show bytes that they did not choose.
#include "supervisor/cli/columns.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "logstore/memory_storage.h"
#include "supervisor/cli/join_text.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::columns_test {

// If this took quadratic time, it would take minutes.
TEST_CASE("units that were joined are grouped by what they share, in its order") {
  constexpr UnitId kObjects = 200'000;
  MemoryStorage storage;
  {
    const auto writer = TraceWriter::create("/t", sample::settings(), storage).value();
    writer->add(UnitRecord{1, 100, {}, {}});
    for (UnitId i = 0; i < 2 * kObjects; ++i) writer->add(Join{1, i % 2 ? i : 0, 5, 100, fmt::format("/o{}", i / 2)});
    REQUIRE(writer->finish(sample::recording_end()));
  }
  const auto sentences = describe_joins(*Trace::open("/t", storage).value());
  REQUIRE_EQ(sentences.size(), 2 * kObjects);
  CHECK_EQ(sentences[0], "unit 1 became part of unit 1 (unit), because they share /o0");
  CHECK_EQ(sentences[3], "a process forked by unit 1 (unit) stayed part of it, because it shares /o1");
}

TEST_CASE("control characters are shown, not sent to the terminal") {
  CHECK(printable("a\x1b[31mb\x07\x7f") == "a\\x1b[31mb\\x07\\x7f");
  CHECK(printable("a\nb\tc") == "a\\nb\\tc");
  CHECK(printable("\xc2\x9b[31m") == "\\u009b[31m");
  CHECK(printable("\xc2\xa0\xc3\xa9\xf0\x9f\x98\x80") == "\xc2\xa0\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(printable("a\x9b[31m\xc2") == "a\\x9b[31m\\xc2");
  CHECK(printable("\xe0\x82\x9b\xed\xa0\x80\xf4\x90\x80\x80") ==
        "\\xe0\\x82\\x9b\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");  // too long, a surrogate, none
  CHECK(printable("\u202etxt\u2066\u200f") == "\\u202etxt\\u2066\\u200f");
  CHECK(printable("\u061c\u2028\ufeff\U000e0041") == "\\u061c\\u2028\\ufeff\\U000e0041");
  CHECK(printable(printable("\x1b")) == printable("\x1b"));
  CHECK(printable_lines("a\x1b\nb\n\nc") == "a\\x1b\nb\n\nc");
  CHECK(printable_lines("") == "");
  Columns columns({"NAME", ">SIZE"});
  columns.add(
      {"a\x1b"
       "b",
       "1"});
  CHECK(columns.text(false) == "NAME    SIZE\na\\x1bb     1\n");
}

TEST_CASE("what can disturb a terminal is escaped in JSON, and read as it was") {
  const std::string name = "a\x1b\x7f\xc2\x9b\u202e\u061c\u2028\U000e0041\n\"\u00e4\U0001f600";
  const nlohmann::ordered_json value{{"name", name}};
  const std::string line = json_line(value);
  CHECK(line == "{\"name\":\"a\\u001b\\u007f\\u009b\\u202e\\u061c\\u2028\\udb40\\udc41\\n\\\"\u00e4\U0001f600\"}");
  CHECK(nlohmann::ordered_json::parse(line) == value);
}

}  // namespace redrive::columns_test
