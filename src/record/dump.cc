#include "record/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/json.h"
#include "base/units.h"

namespace tutti {
namespace {

std::string kind_name(const Recording& recording, const Record& record) {
  const std::string& name = recording.kinds[record.kind].name;
  return name.empty() ? fmt::format("kind {}", record.kind) : name;
}

bool asked_for(const std::string& name, const DumpOptions& options) {
  const auto fits = [&](const std::string& wanted) {
    return wanted.ends_with('.') ? name.starts_with(wanted) : name == wanted;
  };
  return options.kinds.empty() || std::any_of(options.kinds.begin(), options.kinds.end(), fits);
}

// Bytes of a name that a terminal would act upon are shown as dots.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '.';
  return text;
}

// The recorder's clock may be damaged in the file: differences wrap instead of overflowing.
Duration between(int64_t from_ns, int64_t to_ns) {
  return Duration(
      static_cast<int64_t>(static_cast<uint64_t>(to_ns) - static_cast<uint64_t>(from_ns)));
}

// "  bytes=4096 peer=3"; a field that has no label and is 0 says nothing.
std::string fields(const Recording::Kind& kind, const Record& record) {
  std::string text;
  const auto add = [&](const std::string& label, std::string_view otherwise, int64_t value) {
    if (label.empty() && value == 0) return;
    text += fmt::format(" {}={}", label.empty() ? otherwise : printable(label), value);
  };
  add(kind.a_label, "a", record.a);
  add(kind.b_label, "b", record.b);
  return text;
}

std::string span_text(const Record& record) {
  switch (record.op) {
    case Record::Op::begin:
      return record.parent == 0 ? fmt::format(" [span {}]", record.span)
                                : fmt::format(" [span {} in {}]", record.span, record.parent);
    case Record::Op::end:
      return fmt::format(" [span {} took {}]", record.span,
                         format_duration(between(record.began_ns, record.time_ns)));
    case Record::Op::event: break;
  }
  return record.span == 0 ? "" : fmt::format(" [in {}]", record.span);
}

std::string_view sign_of(Record::Op op) {
  if (op == Record::Op::event) return " ";
  return op == Record::Op::begin ? ">" : "<";
}

std::string_view type_of(Record::Op op) {
  if (op == Record::Op::event) return "event";
  return op == Record::Op::begin ? "begin" : "end";
}

// "2023-11-14 22:13:20".
std::string utc_text(int64_t unix_ns) {
  using namespace std::chrono;
  const auto time = floor<seconds>(sys_time<nanoseconds>(nanoseconds(unix_ns)));
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::string state_of(const Recording& recording) {
  if (recording.closed_ns == 0) return "open: its process still records, or was killed";
  return fmt::format("closed after {}",
                     format_duration(between(recording.created_ns, recording.closed_ns)));
}

}  // namespace

std::vector<Record> select_records(const Recording& recording, std::span<const Record> records,
                                   const DumpOptions& options) {
  std::vector<Record> selected;
  std::copy_if(records.begin(), records.end(), std::back_inserter(selected),
               [&](const Record& record) {
                 return record.time_ns >= options.since_ns &&
                        asked_for(kind_name(recording, record), options);
               });
  return selected;
}

std::string dump_heading(const Recording& recording) {
  return fmt::format("{} (pid {}) on {}, since {} UTC; {}\n{:>14} {:>6}   {}\n",
                     recording.process.empty() ? "a process" : printable(recording.process),
                     recording.pid, printable(recording.host), utc_text(recording.created_unix_ns),
                     state_of(recording), "seconds", "thread", "what");
}

std::string dump_records(const Recording& recording, std::span<const Record> records) {
  std::string text;
  for (const Record& record : records) {
    fmt::format_to(std::back_inserter(text), "{:>14.6f} {:>6} {} {}{}{}\n",
                   to_seconds(between(recording.created_ns, record.time_ns)), record.thread,
                   sign_of(record.op), printable(kind_name(recording, record)),
                   fields(recording.kinds[record.kind], record), span_text(record));
  }
  return text;
}

std::string dump_totals(const Recording& recording, uint64_t lost) {
  std::string text;
  for (const Recording::Cell& cell : recording.cells)
    text += fmt::format("{} {} = {}\n", cell.gauge ? "gauge  " : "counter", printable(cell.name),
                        cell.value);
  text += fmt::format("{} events recorded, {} lost ({} overwritten by newer ones, {} unfinished)\n",
                      recording.written(), lost, recording.overwritten, recording.torn);
  if (recording.refused_names > 0)
    text += fmt::format("{} names found no room: give the recorder larger tables\n",
                        recording.refused_names);
  return text;
}

std::string dump_heading_json(const Recording& recording) {
  return dump_json(Json{{"type", "recording"},
                        {"host", recording.host},
                        {"process", recording.process},
                        {"pid", recording.pid},
                        {"created_ns", recording.created_ns},
                        {"created_unix_ns", recording.created_unix_ns},
                        {"closed_ns", recording.closed_ns}}) +
         "\n";
}

std::string dump_records_json(const Recording& recording, std::span<const Record> records) {
  std::string text;
  for (const Record& record : records) {
    const Recording::Kind& kind = recording.kinds[record.kind];
    Json line{{"type", type_of(record.op)},
              {"time_ns", record.time_ns},
              {"thread", record.thread},
              {"kind", kind_name(recording, record)},
              {"sequence", record.sequence},
              {"a", record.a},
              {"b", record.b},
              {"a_label", kind.a_label},
              {"b_label", kind.b_label},
              {"span", record.span}};
    if (record.op == Record::Op::begin) line["parent"] = record.parent;
    if (record.op == Record::Op::end) line["began_ns"] = record.began_ns;
    text += dump_json(line) + "\n";
  }
  return text;
}

std::string dump_totals_json(const Recording& recording, uint64_t lost) {
  Json counters = Json::object();
  Json gauges = Json::object();
  for (const Recording::Cell& cell : recording.cells)
    (cell.gauge ? gauges : counters)[cell.name] = cell.value;
  return dump_json(Json{{"type", "totals"},
                        {"counters", counters},
                        {"gauges", gauges},
                        {"written", recording.written()},
                        {"lost", lost},
                        {"overwritten", recording.overwritten},
                        {"unfinished", recording.torn},
                        {"refused_names", recording.refused_names}}) +
         "\n";
}

}  // namespace tutti
