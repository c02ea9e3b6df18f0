// Trainers as workers of one gang: a thread for each, over the memory of one host.
#pragma once

#include <mutex>

#include "fabric/fabric_fixture_test.h"
#include "train/trainer_fixture_test.h"

namespace tutti {

struct Worker {
  explicit Worker(Fabric& fabric, int threads = 1) : machine(threads), workers(fabric) {
    machine.epoch = EpochWatch(fabric.page(), fabric.parking());
  }
  TrainerHost host() {
    TrainerHost host = machine.host();
    host.workers = &workers;
    return host;
  }
  Result<std::unique_ptr<Trainer>> trainer(BatchSource& data, const TrainerOptions& options,
                                           Model model = small_model()) {
    return Trainer::make(std::move(model), options, data, host());
  }

  TestMachine machine;
  Workers workers;
};

}  // namespace tutti
