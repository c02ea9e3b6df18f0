// A process's one Fabric, as Python's objects share it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rank/rank_fabric.h"
#include "train/vault.h"

namespace tutti {
class Group;
}

// What calls worked on that are over. Who ends them does not have the GIL; who has it empties this.
struct Released {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};

class PythonFabric : public std::enable_shared_from_this<PythonFabric> {
 public:
  PythonFabric(double timeout_s, std::string transport, uint32_t streams, bool checksums,
               bool encrypt, const std::optional<std::string>& tune);

  void join(double timeout_s);
  void leave();
  nanobind::object empty(uint64_t bytes);
  bool holds(const nanobind::ndarray<nanobind::device::cpu>& array);
  nanobind::dict tuning();

  tutti::Fabric& fabric() { return rank_->fabric(); }
  // Opened at its first use, after join().
  tutti::Vault& vault();
  // Held by whoever uses the fabric: it is for one thread at a time.
  std::mutex& mutex() { return mutex_; }
  // For what a call works on until it is over, which may be long after whoever began it has gone.
  std::shared_ptr<void> keep(nanobind::object object);

  // Waits without the GIL, but hears of Ctrl-C; `some` waits for at most as long as it is given.
  void wait_sliced(tutti::Duration timeout,
                   const std::function<tutti::Result<void>(tutti::Duration)>& some);

 private:
  std::mutex mutex_;
  std::shared_ptr<Released> released_ = std::make_shared<Released>();
  std::unique_ptr<tutti::RankFabric> rank_;
  std::optional<tutti::Vault> vault_;
};

struct PythonGroup {
  std::shared_ptr<PythonFabric> fabric;
  std::shared_ptr<tutti::Group> group;
};
