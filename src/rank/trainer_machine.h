// What a trainer needs of Linux: threads, a compiler, memory. In a program that tutti started, what
// is trained lies in the rank's vault, where a successor finds it; else in memory of this process.
#pragma once

#include <memory>
#include <optional>

#include "train/trainer.h"

namespace tutti {

struct TrainerMachineOptions {
  int threads = 0;  // of which it computes with; its share of the cores if 0
};

class TrainerMachine {
 public:
  static Result<std::unique_ptr<TrainerMachine>> open(TrainerMachineOptions options);
  virtual ~TrainerMachine() = default;

  virtual TrainerHost host() = 0;
  virtual int threads() const = 0;
  // Whether states outlive this process.
  virtual bool has_vault() const = 0;
  // Of all threads, in floating-point operations a second: measured once for this kind of processor
  // and kept in the user's cache.
  virtual double peak_flops() = 0;
  // What this process uses now.
  virtual std::optional<uint64_t> memory_bytes() const = 0;
};

}  // namespace tutti
