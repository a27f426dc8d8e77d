#include "logstore/trace.h"

namespace redrive {

// FORMAT.md and redrive-trace(5) show this text, and a test compares them. A change raises user_version.
//
// `messages` has neither an index nor a primary key of unit and event. The catalog of a million messages takes 1.3 s;
// with the key it would take 1.9 s, with the index 1.7 s. A scan of these rows takes 0.1 s, and SQLite builds indexes
// for joins by itself.
const char* catalog_schema() {
  return R"(PRAGMA user_version = 6;
CREATE TABLE settings(key TEXT PRIMARY KEY, value);
CREATE TABLE units(unit INTEGER PRIMARY KEY, name TEXT, pid INTEGER, command TEXT, parent_unit INTEGER, parent_event INTEGER,
  parent_at_ns INTEGER, joined TEXT, events INTEGER, repeats INTEGER);
CREATE TABLE intervals(unit INTEGER, interval INTEGER, checkpoint_kind TEXT, has_image INTEGER, pid INTEGER, command TEXT,
  first_event INTEGER, events INTEGER, repeats INTEGER, cpu_s REAL, pause_ns INTEGER, messages INTEGER, logged_messages INTEGER,
  message_bytes INTEGER, logged_bytes INTEGER, input_bytes INTEGER, clock_error_ns INTEGER, began_unix_ns INTEGER,
  ended_unix_ns INTEGER, PRIMARY KEY(unit, interval)) WITHOUT ROWID;
CREATE TABLE channels(channel INTEGER PRIMARY KEY, kind TEXT, name TEXT, sends INTEGER, sent_bytes INTEGER, messages INTEGER,
  logged_messages INTEGER, message_bytes INTEGER, logged_bytes INTEGER);
CREATE TABLE messages(unit INTEGER, event INTEGER, part INTEGER, interval INTEGER, sender_unit INTEGER, sender_event INTEGER,
  offset INTEGER, length INTEGER, hash INTEGER, logged INTEGER, arrival INTEGER, channel INTEGER, at_ns INTEGER,
  sender_at_ns INTEGER, unix_ns INTEGER, unix_error_ns INTEGER);
CREATE TABLE files(file INTEGER PRIMARY KEY, path TEXT, copy TEXT, size INTEGER);
CREATE TABLE refused(unit INTEGER, what TEXT, answer TEXT, count INTEGER);
CREATE TABLE unsure(unit INTEGER, event INTEGER, reason TEXT);
CREATE TABLE interceptions(unit INTEGER, served INTEGER, stopped INTEGER);
CREATE TABLE stopping_sites(file TEXT, offset INTEGER, instruction TEXT, stops INTEGER, patchable INTEGER);
)";
}

}  // namespace redrive
