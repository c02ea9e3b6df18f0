// A machine for trainers in tests, and small models and texts.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <new>
#include <vector>

#include "run/memory_test.h"
#include "train/model_fixture_test.h"
#include "train/tokens.h"
#include "train/trainer.h"
#include "world/real/helper_thread.h"
#include "world/real/parking.h"
#include "world/real/real_world.h"
#include "world/real/thread_team.h"

namespace tutti {

// States outlive trainers, as in a vault.
class TestMemory final : public TrainerMemory {
 public:
  Result<StateTensor> state(const std::string& name, const Type& type) override {
    const auto [found, added] = states_.try_emplace(name);
    if (added) {
      found->second = room(static_cast<size_t>(type.bytes()));
      bytes_[name] = static_cast<size_t>(type.bytes());
    }
    return StateTensor{.data = found->second.get(), .found = !added};
  }
  bool outlives_process() const override { return true; }

  using Copy = std::map<std::string, std::vector<std::byte>>;
  Copy copy() const {
    Copy all;
    for (const auto& [name, at] : states_) all[name] = {at.get(), at.get() + bytes_.at(name)};
    return all;
  }
  template <class Chosen>
  void restore(const Copy& copy, const Chosen& chosen) {
    for (const auto& [name, bytes] : copy)
      if (chosen(name)) std::ranges::copy(bytes, states_.at(name).get());
  }

 private:
  struct Free {
    void operator()(std::byte* at) const { ::operator delete(at, std::align_val_t(64)); }
  };
  using Room = std::unique_ptr<std::byte, Free>;
  static Room room(size_t bytes) {
    auto* at =
        static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), std::align_val_t(64)));
    std::memset(at, 0, bytes);
    return Room(at);
  }

  std::map<std::string, Room> states_;
  std::map<std::string, size_t> bytes_;
};

struct TestMachine {
  explicit TestMachine(int threads = 1) : team(threads) {}
  TrainerHost host() {
    return {.device = device.cpu,
            .team = team,
            .clock = clock,
            .helper = helper,
            .idler = idler,
            .memory = memory,
            .epoch = epoch};
  }

  ThreadTeam team;
  TestDevice device{team};
  RealParking clock;
  HelperThread helper;
  HelperThread idler{Diligence::when_idle};
  TestMemory memory;
  EpochWatch epoch;
};

// A text of five words in which each follows from the one before.
inline std::shared_ptr<const Tokens> small_text() {
  std::vector<uint16_t> all(400);
  for (size_t i = 1; i < all.size(); ++i) all[i] = static_cast<uint16_t>((all[i - 1] * 2 + 1) % 5);
  return std::make_shared<const Tokens>(Tokens::of(std::move(all), "small text"));
}

inline std::unique_ptr<Trainer> trainer_of(TestMachine& machine, BatchSource& data,
                                           const TrainerOptions& options,
                                           Model model = small_model()) {
  auto made = Trainer::make(std::move(model), options, data, machine.host());
  REQUIRE_MESSAGE(made.has_value(), made.error().text());
  return *std::move(made);
}

inline StepSummary step_of(Trainer& trainer) {
  auto report = trainer.step();
  REQUIRE_MESSAGE(report.has_value(), report.error().text());
  return *report;
}

}  // namespace tutti
