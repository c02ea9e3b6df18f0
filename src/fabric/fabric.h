// A process's place among the ranks of its gang that share memory on this host.
//
// It knows the heap, the rank's control page and the boards of the others. Whoever waits looks at
// the control page: when the epoch is over, every wait ends at once with Code::unavailable, naming
// who was lost, without the help of any peer. Then join() again, which waits for the next epoch.
//
// One thread at a time uses a Fabric and its groups.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/engine_job.h"
#include "fabric/heap.h"
#include "fabric/strides.h"
#include "fabric/tuning.h"
#include "fabric/wiring.h"
#include "tutti/control_page.h"
#include "world/parking.h"
#include "world/world.h"

namespace tutti {

class Group;
class Operation;
class Parcel;
struct GetOptions;
struct PutOptions;
struct ReceiveOptions;
struct Region;
struct SendOptions;

// Of a rank that takes part no longer, for whoever waits for it.
Error left_error(uint32_t rank);

// Something that is done step by step by whoever waits for it.
class Pending {
 public:
  // Does what can be done now; true when nothing is left to do.
  virtual Result<bool> advance() = 0;
  // For errors: who is missing and what they do instead.
  virtual std::string missing() const = 0;
  // 1 + the slot of one that must act first, or kParkedForAny.
  virtual uint32_t waits_for() const { return kParkedForAny; }
  // It failed: nothing of it goes on behind the caller's back when this returns.
  virtual void abandon() {}
  virtual Task<void> abandon(World& world);
  // Notes what the rank sleeps for.
  virtual void note_wait(FlightRecorder& flight) const { flight.wait_in(kWaitsToJoin); }
  // Whether it has work of its own to do, of which advance() does a little at a time.
  virtual bool busy() const { return false; }

 protected:
  ~Pending() = default;
};

struct FabricOptions {
  std::unique_ptr<Mapping> heap;     // the whole arena
  std::unique_ptr<Mapping> control;  // the whole arena of the host's control pages
  uint32_t slot = 0;                 // of both: this rank's page, and its part of the heap
  uint64_t gang = 0;                 // which gang of this host it is: a hash of job and role
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t cores = 1;  // that this host's ranks share: with fewer than ranks, waits do not spin
  Duration timeout = 10min;  // of every wait
  // Of ranks of several hosts; both outlive the Fabric. Without, all ranks are on this one.
  Engine* engine = nullptr;
  Wiring* wiring = nullptr;
  // What rank 0 says holds for all. Off unless asked for: simulations measure nothing.
  TuneWhen tune = TuneWhen::never;
  TuningStore* tunings = nullptr;  // outlives the Fabric
};

class Fabric {
 public:
  static Result<std::unique_ptr<Fabric>> open(Parking& parking, FabricOptions options);
  ~Fabric();

  // Takes part in the present epoch: returns when all ranks of the gang do. Groups of earlier
  // epochs are over. Scratch of a process that had this slot before is cleared. Code::not_found
  // when others have finished their work and left. Who takes part already gets a new world(), when
  // all ranks have called it again.
  Result<void> join(Duration timeout);
  Task<Result<void>> join(World& world, Duration timeout);

  // Takes part no longer; whoever waits for us is told. The destructor does it too.
  void leave();
  Task<void> leave(World& world);
  // Of a simulated process that was killed: it takes no leave.
  void was_killed();

  uint64_t epoch() const { return epoch_; }
  uint32_t rank() const { return options_.rank; }
  uint32_t world_size() const { return options_.world_size; }
  Heap& heap() { return *heap_; }
  Parking& parking() { return parking_; }
  tutti_control_page& page() { return page_of(options_.slot); }
  Duration timeout() const { return options_.timeout; }
  // Of the group of all ranks; the same for all, after join().
  const Tuning& tuning() const { return tuning_; }

  // All ranks; after join().
  std::shared_ptr<Group> world() { return world_; }
  // Some ranks, in this order. Each of them must ask for it, by the same name, and all ask for
  // groups of the same ranks in the same order; who does not is told, with who asked for what.
  // After a deadline it may be asked for again, and goes on. `site` is where the caller is, for
  // people.
  Result<std::shared_ptr<Group>> group(std::vector<uint32_t> ranks, std::string name,
                                       const std::string& site = {});
  Task<Result<std::shared_ptr<Group>>> group(World& world, std::vector<uint32_t> ranks,
                                             std::string name, std::string site = {});

  // From one rank to another (parcel.h). Begun when they return; wait() or poll() for their end.
  Result<std::shared_ptr<Parcel>> send(const SendOptions& options);
  Result<std::shared_ptr<Parcel>> receive(const ReceiveOptions& options);
  Result<std::shared_ptr<Parcel>> put(const PutOptions& options);
  Result<std::shared_ptr<Parcel>> get(const GetOptions& options);
  Result<void> wait(Parcel& parcel, Duration timeout);
  Task<Result<void>> wait(World& world, std::shared_ptr<Parcel> parcel, Duration timeout);
  Result<bool> poll(Parcel& parcel);
  // What others may get and put: of our part of the heap.
  Result<Region> region(const Strides& place) const;

  // On which machine a rank is, in this epoch: a number that only tells whether it is the same.
  uint32_t node_of(uint32_t rank) const { return nodes_.empty() ? 0 : nodes_[rank]; }

  // Ranks of the epoch that died since join(), as far as is known; or the one that left, while the
  // epoch goes on. Who leaves for that reason is nobody's loss.
  std::vector<uint32_t> lost() const;

  // Waits until it is done, the epoch is over, or the time is up.
  Result<void> wait(Pending& pending, Instant deadline);
  Task<Result<void>> wait(World& world, Pending& pending, Instant deadline);

  // Wakes this member if it sleeps for us.
  void ring(uint32_t slot);

 private:
  friend class Group;
  friend class Operation;
  friend class Parcel;
  friend class TuningRun;
  class Joining;
  struct Peer {
    uint32_t slot = 0;
    uint32_t process = 0;
    int32_t pid = 0;
  };

  Fabric(Parking& parking, FabricOptions options, std::unique_ptr<Heap> heap);
  tutti_control_page& page_of(uint32_t slot) const;
  std::atomic<uint32_t>& bell(uint32_t slot) const;
  Board& board() { return heap_->board(options_.slot); }
  bool over() const;
  // As the control page numbers it.
  uint32_t process_of(uint32_t rank) { return page().rank - this->rank() + rank; }
  // Of those that we made in this epoch and still have.
  std::shared_ptr<Group> group_with(uint64_t key) const;
  // Whether the process of a page has ended, as its keeper says.
  bool ended(uint32_t slot) const;
  bool here(uint32_t rank) const { return node_of(rank) == node_of(options_.rank); }
  // Of messages between these two, for the transport; and that there will be none any more.
  uint64_t parcel_scope(uint32_t rank) const;
  void refuse_parcels();
  uint64_t page_epoch() const { return tutti_control_epoch(&page_of(options_.slot)); }
  Error epoch_error() const;
  Transport& transport() { return options_.wiring->transport(); }
  std::shared_ptr<EngineJob> on_engine(std::function<Task<Result<void>>()> make);
  void ring_ourselves();
  // That a group is given up; leave() waits until they know.
  void tell_others(std::vector<uint32_t> ranks, Refusal refusal);
  void begin_to_leave();
  void tell_of_leave();
  void heard_left(uint32_t rank);
  Result<void> check(const Pending& pending, Instant deadline);
  Result<void> wait_for_end(Pending& pending, Instant deadline);
  Task<Result<void>> wait_for_end(World& world, Pending& pending, Instant deadline);
  void announce_flight();
  Joining& joining();
  void look_up_tuning(Group& world);
  void tuned(const Group& world);
  TuningShape shape(const Group& world) const;
  Result<std::shared_ptr<Group>> make_group(std::vector<uint32_t> ranks, std::string name,
                                            const std::string& site);
  Result<std::shared_ptr<Group>> made_group(std::shared_ptr<Group> made, Result<void> met);
  Result<void> finish_joining();

  Parking& parking_;
  FabricOptions options_;
  std::unique_ptr<Heap> heap_;
  FlightRecorder flight_;
  uint64_t epoch_ = 0;
  std::vector<Peer> peers_;           // by rank
  std::vector<uint32_t> nodes_;       // by rank; empty: all are here
  std::unique_ptr<Joining> joining_;  // while it is not done
  std::shared_ptr<Group> world_;
  std::vector<std::shared_ptr<Group>> wide_groups_;   // of several hosts, the world apart
  std::optional<uint32_t> first_left_;                // for which a call failed
  std::map<uint64_t, uint32_t> made_;                 // groups of these ranks since join(), by hash
  std::map<uint64_t, std::shared_ptr<Group>> unmet_;  // whose others had not come in time, likewise
  uint32_t worlds_ = 0;                               // made in this epoch
  std::vector<std::weak_ptr<Group>> groups_;          // by their place on our board
  uint64_t letters_ = 0;                              // shown so far
  std::vector<std::shared_ptr<EngineJob>> telling_;
  bool spins_ = true;
  Tuning tuning_;         // of groups that are made
  Tuning joined_tuning_;  // as it was when all had joined
  bool tuned_ = false;    // by a measurement of our own
  bool scratch_cleared_ = false;
};

}  // namespace tutti
