#include "cluster/event_log_replay.h"

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "cluster/event_log_format.h"
#include "world/fault.h"

namespace tutti::event_log {

namespace {

constexpr std::string_view kTemporary = ".new";  // what write_file_atomically appends
constexpr uint64_t kMaxFileBytes = 2_GiB;  // past every limit of event_log.h, below those of reads

// One opening. The files are read in order, the last segment is settled, and what is needless goes.
class Replay {
 public:
  Replay(World& world, std::string folder, EventLogReader& reader)
      : world_(world), folder_(std::move(folder)), reader_(reader) {}

  Task<Result<Replayed>> run() {
    auto listed = co_await list_files(world_.disk(), folder_);
    if (!listed && listed.error().code() == Code::not_found) co_return Replayed{};
    if (!listed) co_return fail(listed.error());
    files_ = std::move(*listed);
    if (files_.segments.empty() && files_.snapshots.empty() && files_.temporaries.empty())
      co_return Replayed{};
    found_.folder_made = true;  // its names were made durable before it had files
    if (!files_.snapshots.empty()) CO_TRY_DO(co_await read_snapshot(files_.snapshots.back()));
    CO_TRY_DO(co_await read_segments());
    // The process may have ended before it synced the names it made.
    CO_TRY_DO(co_await world_.disk().sync_directory(folder_));
    const uint64_t first_needed = std::max<uint64_t>(first_segment_, 1);
    auto removed = co_await remove_needless(world_.disk(), folder_, std::move(files_),
                                            found_.snapshot_sequence, first_needed);
    if (!removed && removed.error().code() == Code::cancelled) co_return fail(removed.error());
    if (!removed) TUTTI_LOG(warn, "old event log files stay", {{"why", removed.error().text()}});
    co_return std::move(found_);
  }

 private:
  std::string path_of(FileName name) const { return folder_ + "/" + file_name(name); }

  // What is wrong with a file, unless the reader is who said no.
  std::unexpected<Error> damaged(const std::string& file, const Error& error) const {
    if (refused_) return fail(refused_->context(fmt::format("replaying {}", file)));
    if (error.code() != Code::corrupt) return fail(error.context(fmt::format("reading {}", file)));
    return fail(Code::corrupt,
                "{} is damaged {}; put back a copy of {}, or move it away to begin anew without "
                "what it held",
                file, error.text(), folder_);
  }

  Result<void> asked(Result<void> answer) {
    if (!answer) refused_ = answer.error();
    return answer;
  }

  Result<FileHeader> check_header(FileName name, Bytes file) {
    TRY(const FileHeader header, decode_file_header(name.kind, file));
    if (header.name != name)
      return fail(Code::corrupt, "at byte 24: it was called {}", file_name(header.name));
    if (found_.log_id == 0) found_.log_id = header.log_id;
    if (header.log_id != found_.log_id)
      return fail(Code::corrupt, "at byte 16: it belongs to another log");
    return header;
  }

  Result<void> give_snapshot(FileName name, Bytes file) {
    TRY(const FileHeader header, check_header(name, file));
    TRY(const std::string_view state, decode_snapshot(file, header));
    return asked(reader_.on_snapshot(name.number, state));
  }

  Task<Result<void>> read_snapshot(uint64_t sequence) {
    const FileName name{FileKind::snapshot, sequence};
    const std::string path = path_of(name);
    CO_TRY(const std::string file, co_await read_file(world_.disk(), path, kMaxFileBytes));
    auto given = give_snapshot(name, as_bytes(file));
    if (!given) co_return damaged(path, given.error());
    found_.snapshot_sequence = found_.last_sequence = sequence;
    co_return {};
  }

  Task<Result<void>> read_segments() {
    if (files_.segments.empty()) co_return {};
    const uint64_t wanted = found_.snapshot_sequence + 1;
    first_segment_ = files_.segment_of(wanted);
    if (first_segment_ == 0) co_return missing(wanted, files_.segments.front());
    for (const uint64_t first : files_.segments) {
      if (first < first_segment_) continue;
      if (first != first_segment_ && first != found_.last_sequence + 1)
        co_return missing(found_.last_sequence + 1, first);
      CO_TRY_DO(co_await read_segment(first));
    }
    co_return {};
  }

  Result<void> missing(uint64_t wanted, uint64_t found) const {
    return fail(Code::corrupt,
                "{} has no file with record {}, only one that begins with {}; put back a copy of "
                "the folder, or move it away to begin anew without what it held",
                folder_, wanted, found);
  }

  Task<Result<void>> read_segment(uint64_t first) {
    const FileName name{FileKind::segment, first};
    const std::string path = path_of(name);
    const bool last = first == files_.segments.back();
    CO_TRY(std::string file, co_await read_file(world_.disk(), path, kMaxFileBytes));
    // A header is on disk before anything follows it.
    const bool begun = file.size() <= kFileHeaderBytes;
    auto header = check_header(name, as_bytes(file));
    if (!header && header.error().code() == Code::corrupt && begun && last)
      co_return co_await settle_new(name);
    if (!header) co_return damaged(path, header.error());
    auto scan = scan_records(file, *header);
    if (!scan) co_return damaged(path, scan.error());
    if (scan->torn && !last) {
      const Error error(Code::corrupt, fmt::format("at byte {}: the batch that begins with record "
                                                   "{} is broken, and another file follows",
                                                   scan->end, scan->next_sequence));
      co_return damaged(path, error);
    }
    if (last) co_return co_await settle(name, std::move(file), *scan);
    found_.last_sequence = scan->next_sequence - 1;
    co_return {};
  }

  Result<SegmentScan> scan_records(const std::string& file, const FileHeader& header) {
    const auto give = [this](uint64_t sequence, std::string_view record) -> Result<void> {
      if (sequence <= found_.snapshot_sequence) return {};
      found_.bytes_since_snapshot += record.size();
      return asked(reader_.on_record(sequence, record));
    };
    return scan_segment(as_bytes(file), header, give);
  }

  // A segment whose making was interrupted: it never had a record.
  Task<Result<void>> settle_new(FileName name) {
    TUTTI_PROBE("event log: a segment's header was torn");
    if (found_.log_id == 0) found_.log_id = world_.random().next() | 1;
    std::string file = encode_file_header({name, found_.log_id});
    const SegmentScan empty{.next_sequence = name.number, .end = file.size()};
    co_return co_await settle(name, std::move(file), empty);
  }

  // Cuts off what a crash tore, and makes sure that what was replayed is on disk: whoever wrote the
  // last batch may not have lived to sync it. A sync that failed is not made up for by another one,
  // only by writing again; and only the last batch can be in question.
  Task<Result<void>> settle(FileName name, std::string file, SegmentScan scan) {
    const uint64_t snapshot = found_.snapshot_sequence;
    if (name.number <= snapshot && scan.next_sequence <= snapshot + 1) {
      TUTTI_PROBE("event log: a crash came between a snapshot and the end of its segment");
      first_segment_ = snapshot + 1;  // the snapshot has all that is in it
      co_return {};
    }
    const std::string path = path_of(name);
    const OpenOptions options{.write = true};
    CO_TRY(auto opened, co_await world_.disk().open(path, options));
    if (scan.torn) {
      TUTTI_PROBE("event log: a torn tail was cut off");
      TUTTI_LOG(info, "cut off a torn event",
                {{"file", path}, {"at_byte", scan.end}, {"bytes", file.size() - scan.end}});
    }
    if (scan.reserved) TUTTI_PROBE("event log: zeros behind the last record were cut off");
    if (scan.torn || scan.reserved) CO_TRY_DO(co_await opened->truncate(scan.end));
    const Bytes again = as_bytes(file).subspan(scan.last_batch, scan.end - scan.last_batch);
    CO_TRY_DO(co_await opened->write(scan.last_batch, again));
    CO_TRY_DO(co_await opened->sync());
    found_.file = std::move(opened);
    found_.segment_first = name.number;
    found_.segment_end = scan.end;
    found_.last_sequence = scan.next_sequence - 1;
    co_return {};
  }

  World& world_;
  std::string folder_;
  EventLogReader& reader_;
  Files files_;
  Replayed found_;
  std::optional<Error> refused_;  // by the reader
  uint64_t first_segment_ = 0;    // that is needed
};

}  // namespace

uint64_t Files::segment_of(uint64_t sequence) const {
  const auto after = std::upper_bound(segments.begin(), segments.end(), sequence);
  return after == segments.begin() ? 0 : *std::prev(after);
}

Task<Result<Files>> list_files(Disk& disk, std::string folder) {
  CO_TRY(const auto names, co_await disk.list(folder));
  Files files;
  for (const std::string& text : names) {
    const bool temporary = text.ends_with(kTemporary);
    const size_t length = text.size() - (temporary ? kTemporary.size() : 0);
    const auto name = parse_file_name(std::string_view(text).substr(0, length));
    if (!name) continue;
    if (temporary) {
      files.temporaries.push_back(text);
    } else if (name->kind == FileKind::snapshot) {
      files.snapshots.push_back(name->number);
    } else if (name->number != 0) {
      files.segments.push_back(name->number);
    }
  }
  co_return files;
}

Task<Result<void>> remove_needless(Disk& disk, std::string folder, Files files, uint64_t snapshot,
                                   uint64_t first_segment) {
  std::vector<std::string> names = std::move(files.temporaries);
  for (const uint64_t number : files.segments)
    if (number < first_segment) names.push_back(file_name({FileKind::segment, number}));
  for (const uint64_t number : files.snapshots)
    if (number < snapshot) names.push_back(file_name({FileKind::snapshot, number}));
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    CO_TRY_DO(co_await disk.remove(path));
  }
  co_return {};
}

Task<Result<Replayed>> replay(World& world, std::string folder, EventLogReader& reader) {
  Replay opening(world, std::move(folder), reader);
  co_return co_await opening.run();
}

}  // namespace tutti::event_log
