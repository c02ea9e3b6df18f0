// Vaults and replicas for Python: arrays over memory that outlives the process.
#include "vault.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python_fabric.h"
#include "raise.h"
#include "train/replica.h"

namespace nb = nanobind;

namespace {

// An array over memory of the heap, which stays mapped as long as anything of it is in use.
template <class T>
nb::object array_over(const std::shared_ptr<PythonFabric>& fabric, T* data, uint64_t elements) {
  auto* keep = new std::shared_ptr<PythonFabric>(fabric);
  const nb::capsule owner(keep, [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<PythonFabric>*>(pointer);
  });
  const size_t shape[] = {elements};
  return nb::cast(nb::ndarray<nb::numpy, T>(data, 1, shape, owner));
}

// (array of bytes, whether it was there)
nb::tuple vault_tensor(const std::shared_ptr<PythonFabric>& fabric, const std::string& name,
                       const std::string& type, std::vector<uint64_t> shape) {
  const std::scoped_lock lock(fabric->mutex());
  const auto known = tutti::dtype_named(type);
  if (!known) raise(tutti::Error(tutti::Code::invalid, "'" + type + "' is no type of the vault"));
  const auto tensor = value_or_raise(fabric->vault().tensor(name, *known, std::move(shape)));
  auto* bytes = reinterpret_cast<uint8_t*>(tensor.data);
  return nb::make_tuple(array_over(fabric, bytes, tensor.bytes), tensor.found);
}

nb::list vault_list(const std::shared_ptr<PythonFabric>& fabric) {
  nb::list all;
  for (const tutti::VaultTensor& tensor : fabric->vault().list()) {
    const auto type = tutti::dtype_name(tensor.type);
    all.append(nb::make_tuple(tensor.name, std::string(type), tensor.shape));
  }
  return all;
}

class Replica {
 public:
  Replica(std::shared_ptr<PythonFabric> fabric, tutti::ReplicaOptions options)
      : fabric_(std::move(fabric)),
        replica_(value_or_raise(
            tutti::Replica::open(fabric_->fabric(), fabric_->vault(), std::move(options)))) {}

  void step_with(const PythonGroup& group) {
    value_or_raise_void([&] { return replica_->step_with(*group.group); });
  }
  uint64_t recover(const PythonGroup& group) {
    uint64_t step = 0;
    value_or_raise_void([&] -> tutti::Result<void> {
      TRY(step, replica_->recover(*group.group));
      return {};
    });
    return step;
  }
  nb::object weights() const {
    return array_over(fabric_, replica_->weights().data(), replica_->weights().size());
  }
  nb::object gradient() const {
    return array_over(fabric_, replica_->gradient().data(), replica_->gradient().size());
  }
  tutti::Replica& get() { return *replica_; }

 private:
  void value_or_raise_void(const auto& work) {
    tutti::Result<void> done;
    {
      const nb::gil_scoped_release others_may_run;
      const std::scoped_lock lock(fabric_->mutex());
      done = work();
    }
    if (!done) raise(done.error());
  }

  std::shared_ptr<PythonFabric> fabric_;
  std::unique_ptr<tutti::Replica> replica_;
};

}  // namespace

void bind_vault(nb::module_& module) {
  module.def("vault_tensor", vault_tensor, nb::arg("fabric"), nb::arg("name"), nb::arg("dtype"),
             nb::arg("shape"));
  module.def("vault_list", vault_list, nb::arg("fabric"));
  nb::class_<Replica>(module, "Replica")
      .def(
          "__init__",
          [](Replica* self, std::shared_ptr<PythonFabric> fabric, std::string name,
             uint64_t elements, std::string form, double learning_rate, double beta1, double beta2,
             double epsilon, double weight_decay, double max_norm) {
            new (self) Replica(std::move(fabric), {.name = std::move(name),
                                                   .elements = elements,
                                                   .form = std::move(form),
                                                   .adamw = {.learning_rate = learning_rate,
                                                             .beta1 = beta1,
                                                             .beta2 = beta2,
                                                             .epsilon = epsilon,
                                                             .weight_decay = weight_decay},
                                                   .max_norm = max_norm});
          },
          nb::arg("fabric"), nb::arg("name"), nb::arg("elements"), nb::arg("form"),
          nb::arg("learning_rate"), nb::arg("beta1"), nb::arg("beta2"), nb::arg("epsilon"),
          nb::arg("weight_decay"), nb::arg("max_norm"))
      .def("step_with", &Replica::step_with, nb::arg("group"))
      .def("recover", &Replica::recover, nb::arg("group"))
      .def("set_born", [](Replica& self) { self.get().set_born(); })
      .def("set_learning_rate",
           [](Replica& self, double rate) { self.get().set_learning_rate(rate); })
      .def("digest", [](Replica& self) { return self.get().digest(); })
      .def_prop_ro("born", [](Replica& self) { return self.get().born(); })
      .def_prop_ro("step", [](Replica& self) { return self.get().step(); })
      .def_prop_ro("norm", [](Replica& self) { return self.get().last_norm(); })
      .def_prop_ro("weights", &Replica::weights)
      .def_prop_ro("gradient", &Replica::gradient);
}
