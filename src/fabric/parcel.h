// Bytes from one rank to another, and one-sided reads and writes of what a rank shows the others.
//
// Between ranks of a host memory is the transport: who sends shows a letter in its board, and who
// receives copies right from where the bytes lie; put and get are copies. Between hosts the
// transport of the fabric does it (transport.h). Which of the two is chosen for each pair, and the
// caller sees no difference: tags, sizes, errors and the end of an epoch are the same.
//
//   TRY(auto sent, fabric.send({.rank = 3, .tag = 7, .bytes = activations}));
//   ...
//   TRY_DO(fabric.wait(*sent, timeout));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/engine_job.h"
#include "fabric/fabric.h"
#include "fabric/strides.h"
#include "fabric/transport.h"

namespace tutti {

struct SendOptions {
  uint32_t rank = 0;  // to whom; may be ourselves
  // Names the message among those to that rank; may be used again once this one is there.
  uint64_t tag = 0;
  Bytes bytes;                           // none: a notice; they must not change until it is done
  Priority priority = Priority::normal;  // between hosts
  std::string site = {};                 // where the caller is, for people: "train.py:41"
};

struct ReceiveOptions {
  uint32_t rank = 0;  // from whom
  uint64_t tag = 0;
  MutableBytes into;  // as many as are sent, or it is an error at both ends
  std::string site = {};
};

// Where something lies that a rank shows to others: in its heap, for the epoch.
struct Region {
  uint32_t rank = 0;
  Strides place;  // offset in the heap of the rank's host
};

struct PutOptions {
  Region to;
  Bytes bytes;  // one after the other
  Priority priority = Priority::normal;
  std::string site = {};
};

struct GetOptions {
  Region from;
  MutableBytes into;
  Priority priority = Priority::normal;
  std::string site = {};
};

// One of these under way. Whoever drops it before it is done gives it up.
class Parcel final : public Pending {
 public:
  using What = ParcelKind;
  ~Parcel();
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  Result<bool> advance() override;
  std::string missing() const override;
  void abandon() override;
  Task<void> abandon(World& world) override;
  void note_wait(FlightRecorder& flight) const override { flight.wait_for(noted_); }
  bool busy() const override { return copying_; }
  bool done() const { return done_; }

 private:
  friend class Fabric;
  Parcel(Fabric& fabric, What what, uint32_t rank, uint64_t tag)
      : fabric_(fabric), what_(what), rank_(rank), tag_(tag), epoch_(fabric.epoch()) {}
  struct Work {
    Bytes from = {};
    MutableBytes into = {};
    Region region = {};
    Priority priority = Priority::normal;
    const std::string& site;
  };
  static Result<std::shared_ptr<Parcel>> begun(std::shared_ptr<Parcel> parcel, const Work& work);
  Result<void> begin(const Work& work);
  void begin_far(Priority priority);
  Result<void> check_place() const;
  Result<bool> advance_far();
  Result<bool> advance_send();
  bool show();
  void let_go();
  Result<bool> advance_receive();
  Letter* find_letter() const;
  Result<bool> advance_copy();
  Result<bool> finished();
  bool has_left() const;
  Result<void> look_for_left();
  Error size_error(uint64_t sent, uint64_t wanted) const;

  Fabric& fabric_;
  const What what_;
  const uint32_t rank_;
  const uint64_t tag_;
  const uint64_t epoch_;
  Bytes from_;
  MutableBytes into_;
  Strides place_;  // of the region
  FlightParcel noted_{};
  bool done_ = false;
  // Within the host.
  Letter* letter_ = nullptr;  // that we have shown, or take
  uint64_t number_ = 0;       // of that letter
  uint64_t offset_ = 0;       // of what we send, in the heap
  bool staged_ = false;       // there, by us
  bool copying_ = false;
  uint64_t copied_ = 0;
  // Between hosts.
  std::shared_ptr<EngineJob> job_;
};

}  // namespace tutti
