// Recorders to write with, and recordings as plain Python values. What a recorder gave keeps it
// alive: a counter may be used after close(), and its number is still the recording's.
#include "record.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "raise.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "world/real/real_world.h"

namespace nb = nanobind;

namespace {

using tutti::Record;
using tutti::Recording;
using tutti::RecordKind;

using KindOrName = std::variant<RecordKind, std::string_view>;

RecordKind kind_of(const KindOrName& kind) {
  const auto* made = std::get_if<RecordKind>(&kind);
  return made != nullptr ? *made : RecordKind(std::get<std::string_view>(kind));
}

struct Counter {
  std::shared_ptr<tutti::Recorder> owner;
  tutti::Counter cell;
};
struct Gauge {
  std::shared_ptr<tutti::Recorder> owner;
  tutti::Gauge cell;
};

class Span {
 public:
  Span(std::shared_ptr<tutti::Recorder> owner, tutti::Span span)
      : owner_(std::move(owner)), span_(std::move(span)), id_(span_.id()) {}
  tutti::Span& span() { return span_; }
  tutti::SpanId id() const { return id_; }

 private:
  std::shared_ptr<tutti::Recorder> owner_;
  tutti::Span span_;
  tutti::SpanId id_;
};

// The world a recorder was made in is gone when events are recorded; this clock never is.
tutti::Clock& process_clock() {
  static tutti::RealClock& clock = *new tutti::RealClock;
  return clock;
}

class Recorder {
 public:
  Recorder(std::string path, tutti::Recorder::Options options) {
    tutti::RealWorld world({.spin = tutti::Duration(0)});
    auto made = tutti::Recorder::create(world, std::move(path), std::move(options));
    recorder_ = value_or_raise(world.run(std::move(made)));
    recorder_->set_clock(process_clock());
  }

  void event(const KindOrName& kind, int64_t a, int64_t b, tutti::SpanId span) {
    if (recorder_) recorder_->event(kind_of(kind), a, b, span);
  }
  Span span(const KindOrName& kind, int64_t a, int64_t b, tutti::SpanId parent) {
    if (!recorder_) return {nullptr, tutti::Span()};
    return {recorder_, recorder_->span(kind_of(kind), a, b, parent)};
  }
  Counter counter(std::string_view name) {
    return {recorder_, recorder_ ? recorder_->counter(name) : tutti::Counter()};
  }
  Gauge gauge(std::string_view name) {
    return {recorder_, recorder_ ? recorder_->gauge(name) : tutti::Gauge()};
  }
  void close() { recorder_.reset(); }

 private:
  std::shared_ptr<tutti::Recorder> recorder_;
};

nb::str text_of(std::string_view text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

const char* type_of(Record::Op op) {
  if (op == Record::Op::event) return "event";
  return op == Record::Op::begin ? "begin" : "end";
}

// The fields of tutti.record.Record, in its order.
nb::tuple fields_of(const Record& record, const nb::list& kinds) {
  const nb::tuple kind = nb::cast<nb::tuple>(kinds[record.kind]);
  return nb::make_tuple(type_of(record.op), kind[0], record.time_ns, record.thread, record.a,
                        record.b, kind[1], kind[2], record.sequence, record.span, record.parent,
                        record.began_ns);
}

// The fields of tutti.record.Recording by name; records are tuples.
nb::dict parse_recording(const nb::bytes& file) {
  const auto bytes = tutti::as_bytes(std::string_view(file.c_str(), file.size()));
  const Recording recording = value_or_raise(tutti::parse_recording(bytes));
  nb::list kinds;
  for (const Recording::Kind& kind : recording.kinds)
    kinds.append(nb::make_tuple(text_of(kind.name), text_of(kind.a_label), text_of(kind.b_label)));
  nb::list records;
  for (const Record& record : recording.records) records.append(fields_of(record, kinds));
  nb::dict counters;
  nb::dict gauges;
  for (const Recording::Cell& cell : recording.cells)
    (cell.gauge ? gauges : counters)[text_of(cell.name)] = cell.value;
  nb::dict fields;
  fields["host"] = text_of(recording.host);
  fields["process"] = text_of(recording.process);
  fields["pid"] = recording.pid;
  fields["created_ns"] = recording.created_ns;
  fields["created_unix_ns"] = recording.created_unix_ns;
  fields["closed_ns"] = recording.closed_ns;
  fields["records"] = records;
  fields["counters"] = counters;
  fields["gauges"] = gauges;
  fields["overwritten"] = recording.overwritten;
  fields["unfinished"] = recording.torn;
  fields["refused_names"] = recording.refused_names;
  return fields;
}

void bind_handles(nb::module_& module) {
  nb::class_<RecordKind>(module, "RecordKind", "What an event is about; made once and reused.")
      .def(nb::init<std::string_view, std::string_view, std::string_view>(), nb::arg("name"),
           nb::arg("a") = "", nb::arg("b") = "", "A name, and labels of the two fields.");
  nb::class_<Counter>(module, "Counter", "A number that only grows, seen live by readers.")
      .def("add", [](Counter& counter, uint64_t n) { counter.cell.add(n); }, nb::arg("n") = 1);
  nb::class_<Gauge>(module, "Gauge", "A number that goes up and down, seen live by readers.")
      .def(
          "set", [](Gauge& gauge, int64_t value) { gauge.cell.set(value); }, nb::arg("value"))
      .def("add", [](Gauge& gauge, int64_t change) { gauge.cell.add(change); }, nb::arg("change"));
  nb::class_<Span>(module, "Span", "Something with a beginning and an end: use it with `with`.")
      .def_prop_ro("id", &Span::id, "Its name within the recording; 0 when nothing is recorded.")
      .def(
          "set", [](Span& span, int64_t a, int64_t b) { span.span().set(a, b); }, nb::arg("a"),
          nb::arg("b") = 0, "What the record of the end shall say.")
      .def("end", [](Span& span) { span.span().end(); })
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](Span& span, const nb::args&) { span.span().end(); });
}

}  // namespace

void bind_record(nb::module_& module) {
  bind_handles(module);
  module.def("parse_recording", parse_recording, nb::arg("file"),
             "The bytes of a recording as a dict; raises tutti.Error.");
  nb::class_<Recorder>(module, "Recorder", "A process's latest events, in a file that outlives it.")
      .def(
          "__init__",
          [](Recorder* self, std::string path, std::string process, uint32_t lanes,
             uint32_t records_per_lane) {
            new (self) Recorder(std::move(path), {.process = std::move(process),
                                                  .lanes = lanes,
                                                  .records_per_lane = records_per_lane});
          },
          nb::arg("path"), nb::kw_only(), nb::arg("process") = "", nb::arg("lanes") = 4,
          nb::arg("records_per_lane") = 16384)
      .def("event", &Recorder::event, nb::arg("kind"), nb::arg("a") = 0, nb::arg("b") = 0,
           nb::arg("span") = 0, "Records an event, alone or in a span.")
      .def("span", &Recorder::span, nb::arg("kind"), nb::arg("a") = 0, nb::arg("b") = 0,
           nb::arg("parent") = 0, "Begins a span, perhaps within another.")
      .def("counter", &Recorder::counter, nb::arg("name"))
      .def("gauge", &Recorder::gauge, nb::arg("name"))
      .def("close", &Recorder::close, "Records nothing more.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](Recorder& recorder, const nb::args&) { recorder.close(); });
}
