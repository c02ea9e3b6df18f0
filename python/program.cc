// Runs graphs for Python, on NumPy's arrays: compiled, or by the interpreter. Inputs are copied in
// and results out: for looking at models and testing them, not for training.
#include "program.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/units.h"
#include "compile/interpret.h"
#include "compile/passes/passes.h"
#include "compile/program/interpret_program.h"
#include "compile/program/lower.h"
#include "model.h"
#include "raise.h"
#include "run/cpu_device.h"
#include "run/initialise.h"
#include "world/real/native_compiler.h"
#include "world/real/process_memory.h"
#include "world/real/thread_team.h"

namespace nb = nanobind;

using tutti::Code;
using tutti::DType;
using tutti::Error;
using tutti::Graph;
using tutti::Type;

namespace {

using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu, nb::ro>;

// A cache line, and the widest vector.
constexpr std::align_val_t kAlignment{64};

struct Freed {
  void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
};
using Room = std::unique_ptr<std::byte, Freed>;

[[noreturn]] void does_not_fit(const std::string& what, const Type& type) {
  raise(Error(Code::exhausted, what + " is " + type.text() + ", " +
                                   tutti::format_bytes(static_cast<uint64_t>(type.bytes())) +
                                   " that this machine has no room for; make it smaller"));
}

Room room(const std::string& what, const Type& type) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(type.bytes(), 1));
  Room made(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow)));
  if (made == nullptr) does_not_fit(what, type);
  return made;
}

nb::dlpack::dtype numpy_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return nb::dtype<float>();
    case DType::i32: return nb::dtype<int32_t>();
    case DType::i64: return nb::dtype<int64_t>();
    case DType::u32: return nb::dtype<uint32_t>();
    case DType::u8: return nb::dtype<uint8_t>();
    case DType::boolean: return nb::dtype<bool>();
    default: break;
  }
  raise(Error(Code::unsupported, "NumPy has no " + std::string(tutti::dtype_name(dtype)) +
                                     "; cast it to f32 in the model"));
}

void copy_in(const std::string& name, const Type& type, const nb::dict& arrays, std::byte* to) {
  if (!arrays.contains(name.c_str()))
    raise(Error(Code::invalid, "input " + name + " (" + type.text() + ") is missing"));
  AnyArray array;
  bool fits = nb::try_cast(arrays[name.c_str()], array) &&
              array.dtype() == numpy_dtype(type.dtype) && array.ndim() == type.dims.size();
  for (size_t i = 0; fits && i < type.dims.size(); ++i)
    fits = std::cmp_equal(array.shape(i), type.dims[i].size);
  if (!fits) {
    std::string shape;
    for (size_t i = 0; array.is_valid() && i < array.ndim(); ++i)
      shape += (i == 0 ? "" : ", ") + std::to_string(array.shape(i));
    raise(Error(Code::invalid, "input " + name + " is an array of shape (" + shape +
                                   "); it has to be a contiguous one of " + type.text()));
  }
  std::memcpy(to, array.data(), static_cast<size_t>(type.bytes()));
}

nb::object copy_out(const std::string& name, const Type& type, const std::byte* from) {
  Room memory = room("the array of " + name, type);
  std::memcpy(memory.get(), from, static_cast<size_t>(type.bytes()));
  std::vector<size_t> shape;
  for (const tutti::Dim& dim : type.dims) shape.push_back(static_cast<size_t>(dim.size));
  std::byte* data = memory.get();
  const nb::capsule owner(memory.release(),
                          [](void* bytes) noexcept { Freed()(static_cast<std::byte*>(bytes)); });
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr,
                                         numpy_dtype(type.dtype), nb::device::cpu::value));
}

nb::dict interpret_graph(const Graph& graph, const nb::dict& arrays) {
  std::vector<tutti::Array> inputs;
  for (const tutti::Input& input : graph.inputs) {
    const Type& type = graph.type(input.value);
    const Room memory = room("input " + input.name, type);
    copy_in(input.name, type, arrays, memory.get());
    inputs.push_back(tutti::read_array(type, memory.get()));
  }
  const auto results = value_or_raise(tutti::interpret(graph, std::move(inputs)));
  nb::dict outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& name = graph.outputs[i].name;
    const Room memory = room("output " + name, results[i].type);
    tutti::write_array(results[i], memory.get());
    outputs[name.c_str()] = copy_out(name, results[i].type, memory.get());
  }
  return outputs;
}

class PythonProgram {
 public:
  PythonProgram(const Graph& graph, int threads)
      : team_(threads), compiler_(tutti::make_native_compiler()) {
    tutti::Program program = value_or_raise(tutti::lower_to_program(tutti::optimize(graph)));
    loaded_ = value_or_raise(device_.load(std::move(program)));
    const tutti::Program& made = loaded_->program();
    for (size_t i = 0; i < made.inputs.size(); ++i)
      memory_.push_back(room("input " + made.inputs[i].name, made.input_types[i]));
    for (const Room& each : memory_) inputs_.push_back(each.get());
    for (size_t i = 0; i < made.outputs.size(); ++i) outputs_.push_back(place_of(i));
    arena_ = value_or_raise(device_.allocate(std::max<uint64_t>(loaded_->arena_bytes(), 1)));
  }

  nb::dict run(const nb::dict& arrays) {
    const tutti::Program& program = loaded_->program();
    for (size_t i = 0; i < inputs_.size(); ++i)
      copy_in(program.inputs[i].name, program.input_types[i], arrays, inputs_[i]);
    tutti::Result<void> done;
    {
      const nb::gil_scoped_release others_may_run;
      done =
          loaded_->run({.inputs = inputs_, .outputs = outputs_, .arena = arena_->bytes().data()});
    }
    if (!done) raise(done.error());
    nb::dict results;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::string& name = program.outputs[i].name;
      results[name.c_str()] = copy_out(name, program.output_types[i], outputs_[i]);
    }
    return results;
  }
  size_t arena_bytes() const { return loaded_->arena_bytes(); }
  std::string text() const { return loaded_->program().text(); }

 private:
  // A state's next value is where the state is.
  std::byte* place_of(size_t output) {
    const tutti::Program& program = loaded_->program();
    for (size_t i = 0; i < program.inputs.size(); ++i)
      if (program.inputs[i].role == tutti::InputRole::state &&
          program.inputs[i].name == program.outputs[output].name)
        return inputs_[i];
    memory_.push_back(room("output " + program.outputs[output].name, program.output_types[output]));
    return memory_.back().get();
  }

  tutti::ThreadTeam team_;
  std::unique_ptr<tutti::NativeCompiler> compiler_;
  tutti::RealProcessMemory pages_;
  tutti::CpuDevice device_{team_, *compiler_, pages_};
  std::unique_ptr<tutti::LoadedProgram> loaded_;
  std::vector<Room> memory_;
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  std::unique_ptr<tutti::Mapping> arena_;
};

nb::dict initial_weights(const tutti::Model& model, int64_t seed) {
  tutti::ThreadTeam team;
  nb::dict all;
  for (const tutti::Parameter& parameter : model.parameters) {
    const Room memory = room(parameter.name, parameter.type);
    auto* values = reinterpret_cast<float*>(memory.get());
    tutti::initialise(parameter, seed, {values, static_cast<size_t>(parameter.type.elements())},
                      team);
    all[parameter.name.c_str()] = copy_out(parameter.name, parameter.type, memory.get());
  }
  return all;
}

}  // namespace

void bind_program(nb::module_& module) {
  module.def("interpret", interpret_graph, nb::arg("graph"), nb::arg("inputs"));
  module.def(
      "program_text",
      [](const Graph& graph, const std::string& after) {
        return value_or_raise(tutti::program_after(graph, after)).text();
      },
      nb::arg("graph"), nb::arg("after") = "");
  module.def("program_steps", [] {
    const auto steps = tutti::program_steps();
    return std::vector<std::string>(steps.begin(), steps.end());
  });
  module.def("initial_weights", initial_weights, nb::arg("model"), nb::arg("seed"));
  nb::class_<PythonProgram>(module, "Program")
      .def(nb::init<const Graph&, int>(), nb::arg("graph"), nb::arg("threads") = 0)
      .def("run", &PythonProgram::run, nb::arg("inputs"))
      .def_prop_ro("arena_bytes", &PythonProgram::arena_bytes)
      .def("text", &PythonProgram::text);
}
