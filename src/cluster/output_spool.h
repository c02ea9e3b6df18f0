// What the processes of one job printed on this host: in files, bounded, for whoever asks later or
// follows along. Pipes are read as fast as the disk takes it; a process never waits for a reader.
//
// A file is a sequence of pieces: u32 process, u8 stream (1 output, 2 error), u24 zero, u32 bytes,
// then the bytes, all little-endian; an empty piece is the end of that stream. A place in the spool
// is its number of bytes from the beginning of the job; the oldest file goes when there are more
// than kSpoolFiles. What became of the processes is kept beside it, in memory only, and so are ends
// of streams while nothing was printed at all: places in that are of one life of the spool, and are
// passed over by another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/head.pb.h"
#include "world/alarm.h"
#include "world/scope.h"
#include "world/world.h"

namespace tutti {

constexpr size_t kSpoolHeaderBytes = 12;
constexpr uint64_t kSpoolFileBytes = 64_MiB;
constexpr size_t kSpoolFiles = 4;
// Of the processes of one job on one host, restarts included; the oldest go.
constexpr size_t kMostSpoolEvents = 1 << 16;

// Who may read what a job prints, beside root. Kept in the file `readers` beside it, a line each.
struct JobReaders {
  std::string user;           // whose job it is
  std::string cluster_owner;  // who runs the head

  // Code::denied, with whose job it is.
  Result<void> check(uint64_t job, const std::string& name) const;
  // As the file has it.
  std::string text() const;
  static JobReaders parse(std::string_view text);
  // Of a job whose files are left in this folder; nobody where that is not known.
  static Task<JobReaders> left_in(World& world, std::string folder);
};

class OutputSpool {
 public:
  // Of a job that printed here before, files are found again when the first is read or written.
  OutputSpool(World& world, std::string folder);
  ~OutputSpool();

  // To be told before anybody reads or something is printed.
  void set_readers(const JobReaders& readers) { readers_ = readers.text(); }
  JobReaders readers() const { return JobReaders::parse(readers_); }
  // Takes a pipe and reads it to its end.
  Result<void> read_from(uint32_t process, uint8_t stream, Handle pipe);
  size_t open_pipes() const { return open_pipes_; }
  void note(cluster::ProcessEvent event);
  // Nothing more will come; what is in files can be read.
  void close() { over_ = true; }
  // The last in which the job was here so far; told to who has read all.
  void set_last_epoch(uint64_t epoch) { last_epoch_ = epoch; }
  // Gives up pipes that somebody outside of the job still holds, and writes what is left.
  Task<void> finish(Duration patience);
  // Something was printed.
  bool used() const { return posted_ != 0; }

  // What happened and was printed from these places on, in whole pieces, waiting until there is
  // some; what was dropped is passed over. `over` when all has ended and all was read.
  Task<Result<cluster::OutputPiece>> read(cluster::OutputRequest from);

 private:
  class Pump;
  void pipe_ended(uint32_t process, uint8_t stream);
  void start_writing();
  Task<void> write_out();
  Task<void> look();
  Task<Result<void>> find_files();
  Task<Result<uint64_t>> whole_pieces(std::string path);
  Task<Result<void>> write_piece(std::string bytes);
  Task<Result<void>> begin_folder();
  Task<Result<std::string>> read_pieces(uint64_t& place);
  void add(uint32_t process, uint8_t stream, Bytes bytes);
  void ring();
  bool anything_after(const cluster::OutputRequest& from) const;
  std::string file_name(uint64_t first) const;

  struct Part {
    uint64_t first;  // its place
    uint64_t end;
    std::shared_ptr<File> file;  // shared with who reads it; null until it is wanted
  };
  World& world_;
  std::string folder_;
  std::string readers_;  // as text: it is shorter, and there may be very many spools
  std::vector<Part> parts_;
  std::string outbox_;
  uint64_t posted_ = 0;   // the place after all that was added
  uint64_t written_ = 0;  // and after all that is in files
  uint64_t life_;         // another one for each spool of a job
  uint64_t last_epoch_ = 0;
  std::vector<cluster::ProcessEvent> events_;
  uint64_t events_dropped_ = 0;
  std::vector<std::unique_ptr<Pump>> pumps_;
  size_t open_pipes_ = 0;
  bool found_ = false;  // the files of before
  bool is_writing_ = false;
  bool broken_ = false;  // the disk takes no more: what comes is dropped
  bool over_ = false;
  std::vector<Alarm*> followers_;
  Alarm* finishing_ = nullptr;
  Scope strands_{Scope::Root{}};
};

}  // namespace tutti
