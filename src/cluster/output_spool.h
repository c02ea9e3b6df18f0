// What the processes of one job printed on this host: in files, bounded, for whoever asks later or
// follows along. Pipes are read as fast as the disk takes it; a process never waits for a reader.
//
// A file is a sequence of pieces: u32 process, u8 stream (1 output, 2 error), u24 zero, u32 bytes,
// then the bytes, all little-endian; an empty piece is the end of that stream. A place in the spool
// is its number of bytes from the beginning of the job; the oldest file goes when there are more
// than kSpoolFiles.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "world/alarm.h"
#include "world/scope.h"
#include "world/world.h"

namespace tutti {

constexpr size_t kSpoolHeaderBytes = 12;
constexpr uint64_t kSpoolFileBytes = 64_MiB;
constexpr size_t kSpoolFiles = 4;

class OutputSpool {
 public:
  // Of a job that printed here before, files are found again.
  OutputSpool(World& world, std::string folder);

  // Takes a pipe and reads it to its end.
  Result<void> read_from(uint32_t process, uint8_t stream, Handle pipe);
  size_t open_pipes() const { return open_pipes_; }
  // Gives up pipes that somebody outside of the job still holds, and writes what is left.
  Task<void> finish(Duration patience);

  // What was printed from this place on, in whole pieces, waiting until there is some. Nothing once
  // all pipes have ended and all was read. `place` moves on, also past what was dropped.
  Task<Result<std::string>> read(uint64_t& place, Instant deadline);

 private:
  Task<void> pump(uint32_t process, uint8_t stream, std::unique_ptr<Stream> pipe);
  Task<void> write_out();
  Task<Result<void>> write_piece(std::string bytes);
  void add(uint32_t process, uint8_t stream, Bytes bytes);
  void ring();
  std::string file_name(uint64_t first) const;

  struct Part {
    uint64_t first;  // its place
    uint64_t end;
    std::shared_ptr<File> file;  // shared with who reads it
  };
  World& world_;
  std::string folder_;
  std::vector<Part> parts_;
  std::string outbox_;
  uint64_t posted_ = 0;   // the place after all that was added
  uint64_t written_ = 0;  // and after all that is in files
  size_t open_pipes_ = 0;
  bool is_writing_ = false;
  bool broken_ = false;  // the disk takes no more: what comes is dropped
  bool over_ = false;
  std::vector<Alarm*> followers_;
  Scope strands_{Scope::Root{}};
};

}  // namespace tutti
